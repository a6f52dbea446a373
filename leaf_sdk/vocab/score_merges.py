"""Scored pieces to ranked merges: SentencePiece's BPE, and tiktoken's, in the form that `tokenizers` runs.

Both merge the neighbours that join into the best-scored piece, the leftmost first; ranked merges name the two halves.
The results are the same: in any text, a piece is joined from the two halves that remain when the piece is tokenized
alone, since merges inside it happen in the same order there, and none crosses its ends. So one merge per piece is
enough, and a piece that is not reached from its own text is never reached. This needs scores that order pieces
strictly; ties are accepted only among runs of one character that come last, and are tested at every length below 300.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from leaf_sdk.errors import MapUnsupported

_LONGEST_RUN = 300


@dataclass(frozen=True, slots=True)
class RankedMerges:
    """`left right` lines, best first, and the pieces that no merging reaches."""

    merges: list[str]
    unreached: list[str]


def ranked_merges(scores: Mapping[str, float]) -> RankedMerges:
    """Return the merges of scored pieces; single characters need none.

    Raises:
        MapUnsupported: two pieces share a score and are not runs that come last, or merges can't reproduce the runs.
    """
    order = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: -scores[piece])
    runs = _tied_runs(order, scores)
    merges: list[str] = []
    unreached: list[str] = []
    for piece in order[: len(order) - len(runs)]:
        halves = merge_by_score(piece, scores, stop_at=2)
        if len(halves) != 2 or not scores.keys() >= set(halves):
            unreached.append(piece)
        else:
            merges.append(" ".join(halves))
    return RankedMerges(merges + _merges_of_runs(runs, scores), unreached)


def merge_by_score(text: str, scores: Mapping[str, float], *, stop_at: int = 1) -> list[str]:
    """Cut a text into pieces by SentencePiece's rule: join the best-scored neighbours, the leftmost first.

    Written to be right, not fast: it defines what the merges must do. Stops early when `stop_at` parts are left.
    """
    parts: list[str | None] = list(text)
    after = [*range(1, len(parts)), -1]
    before = [*range(-1, len(parts) - 1)]
    waiting = [
        (-scores[joined], left, joined) for left in range(len(parts) - 1) if (joined := text[left : left + 2]) in scores
    ]
    heapify(waiting)
    count = len(parts)
    while waiting and count > stop_at:
        _, left, joined = heappop(waiting)
        right = after[left]
        if parts[left] is None or right < 0 or (parts[left] or "") + (parts[right] or "") != joined:
            continue
        parts[left], parts[right], count = joined, None, count - 1
        after[left] = after[right]
        if after[right] >= 0:
            before[after[right]] = left
        for start in (before[left], left):
            if start >= 0 and after[start] >= 0:
                pair = (parts[start] or "") + (parts[after[start]] or "")
                if pair in scores:
                    heappush(waiting, (-scores[pair], start, pair))
    return [part for part in parts if part is not None]


def _tied_runs(order: Sequence[str], scores: Mapping[str, float]) -> list[str]:
    """Return the pieces at the end of the order that share one score, all runs of one character; refuse other ties."""
    counts = Counter(scores[piece] for piece in order)
    tied = [piece for piece in order if counts[scores[piece]] > 1]
    if not tied:
        return []
    last = list(order)[len(order) - len(tied) :]
    if tied != last or len(set("".join(tied))) != 1 or len({scores[piece] for piece in tied}) != 1:
        what = f"pieces {tied[0]!r} and {tied[1]!r} with the same score"
        raise MapUnsupported(
            f"{what} can't be reproduced exactly, expected a different score for each piece", what=what
        )
    return last


def _merges_of_runs(runs: Sequence[str], scores: Mapping[str, float]) -> list[str]:
    if not runs:
        return []
    known = {runs[0][0], *runs}
    pairs = [(run[:at], run[at:]) for run in runs for at in range(1, len(run)) if {run[:at], run[at:]} <= known]
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    for length in range(1, _LONGEST_RUN):
        text = runs[0][0] * length
        if _merge_by_rank(text, ranks) != merge_by_score(text, scores):
            what = f"runs of {runs[0][0]!r} with the same score"
            raise MapUnsupported(
                f"{what} can't be reproduced exactly, expected a different score for each piece", what=what
            )
    return [" ".join(pair) for pair in pairs]


def _merge_by_rank(text: str, ranks: Mapping[tuple[str, str], int]) -> list[str]:
    parts = list(text)
    best: Callable[[int], int] = lambda at: ranks.get((parts[at], parts[at + 1]), len(ranks))  # noqa: E731
    while len(parts) > 1:
        at = min(range(len(parts) - 1), key=best)
        if best(at) == len(ranks):
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts
