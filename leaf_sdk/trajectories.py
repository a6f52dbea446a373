"""Lines of a gateway's file of trajectories, joined to what a trainer takes: ids, and which of them the model sampled.

Turns lines (`[trajectories]` of codec-gateway), each of which holds what an answer adds to the one before it, into
samples: a prompt, a completion, and a mask over it. An id is the model's where the engine sampled it with exactly the
ids before it that it has in the sample; where a template has rewritten a history, what was sampled before stands in a
sample of its own. The id that ends a turn counts as the model's where the next one is the id that it was. Needs the
standard library alone, and opens no file.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from leaf_sdk.errors import TrajectoryInvalid

__all__ = ["Answer", "Sample", "Sampled", "Span", "Trajectories", "for_trl", "for_verl", "read_trajectories"]


@dataclass(frozen=True, slots=True)
class Span:
    """Ids that follow each other and have one source."""

    source: str
    """`template`, `system`, `user`, `model`, `leaf`, `shim`, `error`, or `assistant`: words of the model's turns in ids
    that it did not write."""
    ids: int
    """How many."""
    tool: str | None = None
    server: str | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """A turn that the engine sampled."""

    start: int
    """Ids before it."""
    ids: int
    """How many."""
    ended_by: int | None = None
    """The id that ended it, which is not one of them; None where the model did not end it."""
    guessed: bool = False
    """Whether some ids were lost on the way and found by choice."""
    logprobs: tuple[float | None, ...] = ()
    """Of its ids, and of the one that ended it; None: not known. Empty: they were not asked for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One line."""

    answer_id: str
    before: str | None
    """The answer that it goes on from."""
    principal: str
    map: str
    model: str
    model_digest: str | None
    ended: str
    """`stop`, `length`, `tool_calls`, or `broken`."""
    kept: int
    """Ids with which it begins as the one before does."""
    ids: tuple[int, ...]
    """Those behind them."""
    spans: tuple[Span, ...]
    sampled: tuple[Sampled, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation up to one answer, as a trainer takes it."""

    answer: Answer
    """The last one."""
    ids: list[int]
    """All that the engine held at its end."""
    spans: list[Span]
    """The sources of `ids`."""
    sampled: list[Sampled]
    """Turns that were sampled with exactly the ids before them that they have here."""

    @property
    def _start(self) -> int:
        return self.sampled[0].start

    @property
    def prompt_ids(self) -> list[int]:
        """What stands before the first id that was sampled."""
        return self.ids[: self._start]

    @property
    def completion_ids(self) -> list[int]:
        """What stands behind it, with the id that ended the last turn, which the engine samples and does not hold."""
        last = self.sampled[-1]
        final = last.start + last.ids == len(self.ids) and last.ended_by is not None
        return self.ids[self._start :] + ([cast("int", last.ended_by)] if final else [])

    @property
    def mask(self) -> list[int]:
        """1 for each id of the completion that the model sampled, else 0."""
        mask = [0] * len(self.completion_ids)
        for at, count, _ in self._runs():
            mask[at : at + count] = [1] * count
        return mask

    @property
    def logprobs(self) -> list[float | None] | None:
        """Of the completion: 0.0 for ids that the model did not sample, None where the engine did not say.

        None in all where the file has none.
        """
        if not any(turn.logprobs for turn in self.sampled):
            return None
        logprobs: list[float | None] = [0.0] * len(self.completion_ids)
        for at, count, turn in self._runs():
            told = turn.logprobs or (None,) * count
            logprobs[at : at + count] = told[:count]
        return logprobs

    def _runs(self) -> Iterator[tuple[int, int, Sampled]]:
        """Places of sampled ids in the completion, the id that ended a turn included where it stands behind it."""
        completion = self.completion_ids
        for turn in self.sampled:
            at = turn.start - self._start
            end = at + turn.ids
            ends = turn.ended_by is not None and completion[end : end + 1] == [turn.ended_by]
            yield at, turn.ids + ends, turn


class Trajectories:
    """The answers of one file, or of several."""

    def __init__(self, answers: Mapping[str, Answer], lost: int = 0) -> None:
        """`lost`: lines of which the file says that they could not be written."""
        self.answers = dict(answers)
        self.lost = lost

    def samples(self) -> Iterator[Sample]:
        """Give a sample for each answer that no other one continues whole; together they hold all that was sampled.

        Answers with a missing beginning (`incomplete`) are left out. Branches share their beginnings.
        """
        for answer in self.answers.values():
            if answer.answer_id not in self._continued and answer.answer_id not in self._beheaded:
                sample = self.sample(answer.answer_id)
                # An answer may break off before its first id.
                if any(sample.mask):
                    yield sample

    @property
    def incomplete(self) -> list[str]:
        """Answers that go on from one whose line is not here."""
        return list(self._beheaded)

    def sample(self, answer_id: str) -> Sample:
        """Give the sample that ends with an answer. Raises `TrajectoryInvalid` where a line of it is missing."""
        ids: list[int] = []
        spans: list[Span] = []
        sampled: list[Sampled] = []
        chain = self._chain(answer_id)
        for answer in chain:
            ids[answer.kept :] = answer.ids
            spans = [*_first(spans, answer.kept), *answer.spans]
            sampled = [*(_cut(turn, answer.kept) for turn in sampled if turn.start < answer.kept), *answer.sampled]
        return Sample(chain[-1], ids, spans, sampled)

    def _chain(self, answer_id: str) -> list[Answer]:
        chain: list[Answer] = []
        wanted: str | None = answer_id
        while wanted is not None:
            answer = self.answers.get(wanted)
            if answer is None:
                raise TrajectoryInvalid(f"no line has the answer {wanted!r}; read the files from before as well")
            chain.append(answer)
            wanted = answer.before
        return chain[::-1]

    @cached_property
    def _continued(self) -> set[str]:
        """Answers that another one continues whole."""
        sizes = {name: answer.kept + len(answer.ids) for name, answer in self.answers.items()}
        return {
            answer.before
            for answer in self.answers.values()
            if answer.before is not None and sizes.get(answer.before) == answer.kept
        }

    @cached_property
    def _beheaded(self) -> dict[str, None]:
        found: dict[str, None] = {}
        # A line stands behind the one that it goes on from: `read_trajectories` sees to it.
        for name, answer in self.answers.items():
            if answer.before is not None and (answer.before not in self.answers or answer.before in found):
                found[name] = None
        return found


def read_trajectories(lines: Iterable[str | bytes]) -> Trajectories:
    """Read lines of a file of trajectories, or of several, the oldest first.

    Raises `TrajectoryInvalid` for a line that is none, naming its number.
    """
    answers: dict[str, Answer] = {}
    lost = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            told: dict[str, Any] = json.loads(line)
            if "dropped" in told:
                lost += int(told["dropped"])
                continue
            answer = _answer(told)
            _check(answer, answers)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise TrajectoryInvalid(f"line {number} is no line of a file of trajectories: {error!r:.200}") from error
        answers[answer.answer_id] = answer
    return Trajectories(answers, lost)


def for_trl(samples: Sequence[Sample]) -> dict[str, Any]:
    """Give samples as a `rollout_func` of TRL's `GRPOTrainer` returns them.

    `env_mask` takes out what the model did not sample, and ids whose log-probability is not known.
    """
    known = [_known(sample) for sample in samples]
    told = all(logprobs is not None for _, logprobs in known)
    return {
        "prompt_ids": [sample.prompt_ids for sample in samples],
        "completion_ids": [sample.completion_ids for sample in samples],
        "logprobs": [logprobs for _, logprobs in known] if told else None,
        "env_mask": [mask for mask, _ in known],
    }


def for_verl(sample: Sample) -> dict[str, Any]:
    """Give a sample as fields of verl's `AgentLoopOutput`, to which `metrics` are to be added."""
    mask, logprobs = _known(sample)
    turns = 1 + sum(span.source in ("user", "leaf", "shim", "error") for span in sample.spans)
    return {
        "prompt_ids": sample.prompt_ids,
        "response_ids": sample.completion_ids,
        "response_mask": mask,
        "response_logprobs": logprobs,
        "num_turns": turns,
    }


def _known(sample: Sample) -> tuple[list[int], list[float] | None]:
    """The mask and the log-probabilities, without ids whose log-probability is not known."""
    mask, logprobs = sample.mask, sample.logprobs
    if logprobs is None:
        return mask, None
    known = [bit if logprob is not None else 0 for bit, logprob in zip(mask, logprobs, strict=True)]
    return known, [logprob if logprob is not None else 0.0 for logprob in logprobs]


def _first(spans: Sequence[Span], count: int) -> Iterator[Span]:
    """The sources of the first ids."""
    for span in spans:
        if count <= 0:
            return
        yield replace(span, ids=min(span.ids, count))
        count -= span.ids


def _cut(turn: Sampled, kept: int) -> Sampled:
    """A turn of which not all may be kept."""
    left = kept - turn.start
    if turn.ids <= left:
        return turn
    return replace(turn, ids=left, ended_by=None, logprobs=turn.logprobs[:left])


def _answer(told: Mapping[str, Any]) -> Answer:
    return Answer(
        answer_id=str(told["id"]),
        before=None if told["before"] is None else str(told["before"]),
        principal=str(told["principal"]),
        map=str(told["map"]),
        model=str(told["model"]),
        model_digest=told.get("model_digest"),
        ended=str(told["ended"]),
        kept=_count(told["kept"]),
        ids=tuple(_count(token_id) for token_id in told["ids"]),
        spans=tuple(Span(str(s["source"]), _count(s["ids"]), s.get("tool"), s.get("server")) for s in told["spans"]),
        sampled=tuple(map(_sampled, told["sampled"])),
    )


def _sampled(told: Mapping[str, Any]) -> Sampled:
    ended_by = told["ended_by"]
    return Sampled(
        start=_count(told["start"]),
        ids=_count(told["ids"]),
        ended_by=None if ended_by is None else _count(ended_by),
        guessed=bool(told["guessed"]),
        logprobs=tuple(None if each is None else float(each) for each in told.get("logprobs") or ()),
    )


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.40} is no count and no id")
    return value


def _check(answer: Answer, answers: Mapping[str, Answer]) -> None:
    """Raise ValueError where a line contradicts itself, or those before it."""
    before = answers.get(answer.before or "")
    size = answer.kept + len(answer.ids)
    if answer.answer_id in answers:
        raise ValueError(f"the answer {answer.answer_id!r:.80} has a line already")
    if answer.before == answer.answer_id or (answer.before is None and answer.kept):
        raise ValueError(f"it keeps {answer.kept} ids of no answer")
    if before is not None and answer.kept > before.kept + len(before.ids):
        raise ValueError(f"it keeps {answer.kept} ids of an answer that has fewer")
    if sum(span.ids for span in answer.spans) != len(answer.ids):
        raise ValueError(f"its spans are not as long as its {len(answer.ids)} ids")
    if not answer.sampled or any(turn.start < answer.kept or turn.start + turn.ids > size for turn in answer.sampled):
        raise ValueError("what was sampled is no part of its ids")
    for turn in answer.sampled:
        if turn.logprobs and len(turn.logprobs) != turn.ids + (turn.ended_by is not None):
            raise ValueError("it has not one log-probability an id")
