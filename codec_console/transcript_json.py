"""A conversation as JSON for the viewer: counts and sources, and where text may be shown also ids and text.

Turns a `Transcript` into JSON values. Where text may not be shown, ids are left out, since anybody with the tokenizer
can turn them into text, and so are each id's size and log-probability, from which much of the text can be guessed.
Texts are data: the viewer shows them as text, never as markup.
"""

import base64
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from codec_console.retokenization import Difference, differences
from codec_console.runs import Run
from codec_console.transcript import Transcript, TranscriptCall, TranscriptTurn
from gateway.escape import escape_text
from leaf_sdk.vocab import TokenMap

RANGE: Final = 4096
"""Maximum number of ids in one answer."""
COMPARED: Final = 50_000
"""Ids after which one answer stops comparing; a run with more ids is not compared at all."""
_TOLD: Final = 1000
_NAME: Final = 128
_AS_MARKERS: Final = frozenset({"template", "model", "reasoning", "assistant"})
"""Sources in whose text engines read markers as special tokens."""


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """How a conversation may be shown: the map that spells its ids, and what is hidden."""

    token_map: TokenMap | None
    """None: the conversation's map is not available here."""
    hidden: Collection[int]
    """Positions of ids that are not shown, since they spell a secret."""
    texts: bool
    """Whether text may be shown."""
    tools: Collection[str] = ()
    """Tool names that are shown even without `texts`: the gateway's own. Others are part of the conversation's text."""

    def tool(self, name: str) -> str | None:
        """A tool's name to show; None where it may not be shown."""
        return escape_text(name, _NAME) if self.texts or name in self.tools else None


def transcript_json(transcript: Transcript, view: ViewOptions) -> dict[str, Any]:
    """Everything about the conversation but its ids."""
    return {
        "number": transcript.number,
        "answer": transcript.answer_id,
        "count": len(transcript.ids),
        "ids": view.texts,
        "texts": view.texts and view.token_map is not None,
        "runs": [_run(run, view) for run in transcript.runs],
        "turns": [_turn(turn) for turn in transcript.turns],
        "calls": [_call(call, view) for call in transcript.calls],
        "answers": [[each.answer_id, each.kept] for each in transcript.answers],
        "cache_ends": [[each.turn, each.cached, each.held, each.prompt] for each in transcript.cache_ends()],
    }


def ids_json(transcript: Transcript, view: ViewOptions, start: int, count: int) -> dict[str, Any]:
    """A range of ids; None for one that spells a secret. `bytes`: those of all ids, base64; `sizes`: bytes of each.

    Where text may not be shown, only how many ids the range has.
    """
    numbers = range(start, max(start, min(start + min(count, RANGE), len(transcript.ids))))
    told: dict[str, Any] = {"from": start, "count": len(numbers)}
    if not view.texts:
        return told
    ids = [None if number in view.hidden else transcript.ids[number] for number in numbers]
    told |= {"ids": ids, "logprobs": _logprobs(transcript.turns, numbers)}
    if (token_map := view.token_map) is None:
        return told
    special = token_map.special_ids
    told["special"] = [n for n, token_id in enumerate(ids) if token_id is not None and token_id in special]
    pieces = [b"" if token_id is None else token_map.table.get(token_id) or b"" for token_id in ids]
    return told | {"bytes": base64.b64encode(b"".join(pieces)).decode(), "sizes": [len(piece) for piece in pieces]}


def differences_json(transcript: Transcript, view: ViewOptions, start: int) -> dict[str, Any]:
    """What a gateway that keeps texts would hold instead of the ids from `start` on.

    `next`: where to go on; None at the end. `unread`: ids in runs that text can't represent, or too long to compare.
    """
    found: list[dict[str, Any]] = []
    unread = 0
    token_map, done = view.token_map, start
    if not view.texts or token_map is None or not token_map.can_encode:
        return {"from": start, "next": None, "known": False, "differences": []}
    for run in transcript.runs:
        if run.stop <= start:
            continue
        if done - start >= COMPARED or len(found) >= _TOLD:
            return {"from": start, "next": done, "known": True, "unread": unread, "differences": found}
        # A run is compared whole: its end would be tokenized differently if it were cut.
        markers = run.source in _AS_MARKERS
        whole = run.count <= COMPARED
        unequal = differences(transcript.ids[run.start : run.stop], token_map, specials=markers) if whole else None
        unread += run.count if unequal is None else 0
        found += [_difference(each, run.start, view, token_map) for each in unequal or ()]
        done = run.stop
    return {"from": start, "next": None, "known": True, "unread": unread, "differences": found}


def _difference(each: Difference, start: int, view: ViewOptions, token_map: TokenMap) -> dict[str, Any]:
    at = start + each.start
    secret = any(number in view.hidden for number in range(at, at + each.count))
    others = () if secret else each.others
    spelled = [base64.b64encode(token_map.token_bytes(other)).decode() for other in others]
    return {"at": at, "count": each.count, "ids": others, "bytes": spelled}


def _run(run: Run, view: ViewOptions) -> list[Any]:
    tool = None if run.tool is None else view.tool(run.tool)
    server = None if run.server is None else escape_text(run.server, _NAME)
    return [run.start, run.count, run.source, tool, server, run.call]


def _turn(turn: TranscriptTurn) -> dict[str, Any]:
    record = turn.record
    return {
        "answer": turn.answer,
        "start": turn.start,
        "count": turn.count,
        "calls": turn.calls,
        "guessed": None if record is None else record.guessed,
    }


def _call(call: TranscriptCall, view: ViewOptions) -> dict[str, Any]:
    record = call.record
    return {
        "name": view.tool(call.name),
        "server": None if record is None or record.server is None else escape_text(record.server, _NAME),
        "turn": call.turn,
        "seconds": None if record is None else round(record.seconds, 4),
        "error": None if record is None else record.is_error,
    }


def _logprobs(turns: Iterable[TranscriptTurn], numbers: range) -> list[float | None] | None:
    """The log probability of each id, None for an id without one; None where no id has one."""
    found: list[float | None] = [None] * len(numbers)
    told = False
    for turn in turns:
        if turn.start is None or turn.record is None or not turn.record.logprobs:
            continue
        for number in range(max(turn.start, numbers.start), min(turn.start + len(turn.record.logprobs), numbers.stop)):
            logprob = turn.record.logprobs[number - turn.start]
            if isfinite(logprob):
                found[number - numbers.start], told = round(logprob, 3), True
    return found if told else None
