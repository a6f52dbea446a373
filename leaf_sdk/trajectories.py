"""The lines of a gateway's trajectory file, joined into what a trainer takes: ids, and which of them the model sampled.

Turns lines (`[trajectories]` of codec-gateway), each of which holds what an answer adds to the one before it, into
samples: a prompt, a completion, and a mask over it. An id is the model's where the engine sampled it after exactly the
ids that precede it in the sample; where a template has rewritten a history, what was sampled before that gets a sample
of its own. The id that ended a turn counts as the model's where the sample has it after the turn. Needs only the
standard library, and opens no file.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

from leaf_sdk.errors import TrajectoryInvalid

__all__ = ["Answer", "Sample", "Sampled", "Span", "Trajectories", "for_trl", "for_verl", "read_trajectories"]


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive ids from one source."""

    source: str
    """`template`, `system`, `user`, `model`, `leaf`, `shim`, `error`, or `assistant`: text of the model's turns in ids
    that it did not write."""
    ids: int
    """How many."""
    tool: str | None = None
    server: str | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """A turn that the engine sampled."""

    start: int
    """How many ids precede it."""
    ids: int
    """How many ids it has."""
    ended_by: int | None = None
    """The id that ended it, not counted in `ids`; None where the model did not end it."""
    guessed: bool = False
    """Whether some of its ids were lost on the way and chosen among several possible ones."""
    logprobs: tuple[float | None, ...] = ()
    """Log-probabilities of its ids, then of the id that ended it; None where unknown. Empty if not asked for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One line of a file."""

    answer_id: str
    before: str | None
    """The id of the answer that it continues."""
    principal: str
    map: str
    model: str
    model_digest: str | None
    ended: str
    """`stop`, `length`, `tool_calls`, or `broken`."""
    kept: int
    """How many ids it has in common with the beginning of the one before."""
    ids: tuple[int, ...]
    """The ids after those."""
    spans: tuple[Span, ...]
    sampled: tuple[Sampled, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation up to one answer, as a trainer takes it."""

    answer: Answer
    """The last answer."""
    ids: list[int]
    """Everything that the engine held at its end."""
    spans: list[Span]
    """The sources of `ids`."""
    sampled: list[Sampled]
    """Turns that were sampled after exactly the ids that precede them here."""

    @property
    def _start(self) -> int:
        return self.sampled[0].start

    @property
    def prompt_ids(self) -> list[int]:
        """The ids before the first one that was sampled."""
        return self.ids[: self._start]

    @property
    def completion_ids(self) -> list[int]:
        """The ids after the prompt, and the id that ended a last turn: the engine samples it but does not hold it."""
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
        """Log-probabilities of the completion: 0.0 for ids that the model did not sample, None where unknown.

        None instead of a list where no turn has any.
        """
        if not any(turn.logprobs for turn in self.sampled):
            return None
        logprobs: list[float | None] = [0.0] * len(self.completion_ids)
        for at, count, turn in self._runs():
            told = turn.logprobs or (None,) * count
            logprobs[at : at + count] = told[:count]
        return logprobs

    def _runs(self) -> Iterator[tuple[int, int, Sampled]]:
        """Yield where sampled ids are in the completion, with the id that ended a turn where it follows the turn."""
        completion = self.completion_ids
        for turn in self.sampled:
            at = turn.start - self._start
            end = at + turn.ids
            ends = turn.ended_by is not None and completion[end : end + 1] == [turn.ended_by]
            yield at, turn.ids + ends, turn


class Trajectories:
    """The answers of one file, or of several."""

    def __init__(self, answers: Mapping[str, Answer], lost: int = 0) -> None:
        """`lost`: how many lines could not be written, according to the file."""
        self.answers = dict(answers)
        self.lost = lost

    def samples(self) -> Iterator[Sample]:
        """Yield a sample for each answer that no other one continues in full; together they hold all that was sampled.

        Answers with a missing beginning (`incomplete`) are left out. Branches share their beginnings.
        """
        for answer in self.answers.values():
            if answer.answer_id not in self._continued and answer.answer_id not in self._without_beginning:
                sample = self.sample(answer.answer_id)
                # An answer may break off before its first id.
                if any(sample.mask):
                    yield sample

    @property
    def incomplete(self) -> list[str]:
        """Answers that continue one whose line is missing, directly or through others."""
        return [name for name in self.answers if name in self._without_beginning]

    def sample(self, answer_id: str) -> Sample:
        """Return the sample that ends with an answer.

        Raises `TrajectoryInvalid` where one of its lines is missing, or where the answer continues itself.
        """
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
        chain: dict[str, Answer] = {}
        wanted: str | None = answer_id
        while wanted is not None:
            if wanted in chain:
                raise TrajectoryInvalid(f"{_circle(wanted)}; the file is damaged")
            answer = self.answers.get(wanted)
            if answer is None:
                raise TrajectoryInvalid(f"no line holds the answer {wanted!r:.80}; read the older files as well")
            chain[wanted] = answer
            wanted = answer.before
        return [*chain.values()][::-1]

    @cached_property
    def _continued(self) -> set[str]:
        """Answers that another one continues in full."""
        sizes = {name: answer.kept + len(answer.ids) for name, answer in self.answers.items()}
        return {
            answer.before
            for answer in self.answers.values()
            if answer.before is not None and sizes.get(answer.before) == answer.kept
        }

    @cached_property
    def _without_beginning(self) -> set[str]:
        missing = {answer.before for answer in self.answers.values() if answer.before is not None} - self.answers.keys()
        return _continuing(self.answers, missing)


def read_trajectories(lines: Iterable[str | bytes]) -> Trajectories:
    """Read the lines of one trajectory file, or of several, in any order.

    Raises `TrajectoryInvalid` for an invalid line, naming its number.
    """
    answers: dict[str, Answer] = {}
    numbers: dict[str, int] = {}
    lost = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            told = _object(line)
            if "dropped" in told:
                lost += _count(told["dropped"])
                continue
            answer = _answer(told)
            _check(answer)
            if answer.answer_id in answers:
                raise ValueError(f"an earlier line holds the answer {answer.answer_id!r:.80} as well")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise _invalid(number, f"it has no {error}" if isinstance(error, KeyError) else str(error)) from error
        answers[answer.answer_id] = answer
        numbers[answer.answer_id] = number
    for name, why in _contradictions(answers):
        raise _invalid(numbers[name], why)
    return Trajectories(answers, lost)


def for_trl(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return samples in the form that a `rollout_func` of TRL's `GRPOTrainer` returns.

    `env_mask` excludes ids that the model did not sample or whose log-probability is not known.
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
    """Return a sample as fields of verl's `AgentLoopOutput`; the caller adds `metrics`."""
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
    """Return the mask, which excludes ids without a known log-probability, and the log-probabilities."""
    mask, logprobs = sample.mask, sample.logprobs
    if logprobs is None:
        return mask, None
    known = [bit if logprob is not None else 0 for bit, logprob in zip(mask, logprobs, strict=True)]
    return known, [logprob if logprob is not None else 0.0 for logprob in logprobs]


def _first(spans: Sequence[Span], count: int) -> Iterator[Span]:
    """Yield the spans of the first `count` ids."""
    for span in spans:
        if count <= 0:
            return
        yield replace(span, ids=min(span.ids, count))
        count -= span.ids


def _cut(turn: Sampled, kept: int) -> Sampled:
    """Return a turn, shortened to what is kept of it."""
    left = kept - turn.start
    if turn.ids <= left:
        return turn
    return replace(turn, ids=left, ended_by=None, logprobs=turn.logprobs[:left])


def _object(line: str | bytes) -> dict[str, Any]:
    told: object = json.loads(line)
    if not isinstance(told, dict):
        raise ValueError(f"it is a JSON {type(told).__name__}, expected an object")
    return cast("dict[str, Any]", told)


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
        raise ValueError(f"it has {value!r:.40} where a whole number of at least 0 belongs")
    return value


def _check(answer: Answer) -> None:
    """Raise ValueError where a line contradicts itself."""
    size = answer.kept + len(answer.ids)
    if answer.before is None and answer.kept:
        raise ValueError(f"it keeps {answer.kept} ids, but continues no answer")
    if sum(span.ids for span in answer.spans) != len(answer.ids):
        raise ValueError(f"its spans do not add up to its {len(answer.ids)} ids")
    if not answer.sampled:
        raise ValueError("it has no sampled turn")
    if any(turn.start < answer.kept or turn.start + turn.ids > size for turn in answer.sampled):
        raise ValueError("it has a sampled turn outside its own ids")
    if any(turn.start + turn.ids > following.start for turn, following in pairwise(answer.sampled)):
        raise ValueError("it has sampled turns that overlap or are out of order")
    for turn in answer.sampled:
        if turn.logprobs and len(turn.logprobs) != turn.ids + (turn.ended_by is not None):
            raise ValueError("it has a sampled turn with more or fewer log-probabilities than ids")


def _contradictions(answers: Mapping[str, Answer]) -> Iterator[tuple[str, str]]:
    """Yield answers that contradict others, each with the reason."""
    for name, answer in answers.items():
        before = answers.get(answer.before) if answer.before is not None else None
        size = None if before is None else before.kept + len(before.ids)
        if size is not None and answer.kept > size:
            yield name, f"it keeps {answer.kept} ids of an answer that has only {size}"
    sound = _continuing(answers, {answer.before for answer in answers.values()} - answers.keys())
    yield from ((name, _circle(name)) for name in answers if name not in sound)


def _continuing(answers: Mapping[str, Answer], beginnings: Iterable[str | None]) -> set[str]:
    """Return the answers that continue one of these, directly or through others; with None, those that begin anew."""
    following: dict[str | None, list[str]] = {}
    for name, answer in answers.items():
        following.setdefault(answer.before, []).append(name)
    waiting, found = [*beginnings], set[str]()
    while waiting:
        names = following.get(waiting.pop(), [])
        found.update(names)
        waiting.extend(names)
    return found


def _circle(name: str) -> str:
    return f"the answer {name!r:.80} continues itself, directly or through others"


def _invalid(number: int, why: str) -> TrajectoryInvalid:
    return TrajectoryInvalid(f"line {number} is not a valid line of a trajectory file: {why:.200}")
