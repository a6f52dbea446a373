"""Trajectories: the ids of every answer, and where each came from, one JSON line for each answer.

A line holds what an answer adds to the one that it continues, so that a conversation's lines together are as long as
the conversation; `leaf_sdk.trajectories` joins them again. They are written in the same way as the audit log's lines
(`line_log.py`). It knows no conversation.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any, Final, Literal

from gateway.errors import ConfigError
from gateway.escape import cut_text, mask_text
from gateway.observe.client_metrics import AccessMetrics
from gateway.observe.line_log import LineKind, LineLog, ascii_json, stamp

Source = Literal["template", "system", "tools", "user", "assistant", "model", "leaf", "shim", "error"]
_NAME_CUT: Final = 200
_ID_BYTES: Final = 8
_LOGPROB_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Span:
    """Ids that follow each other and have one source."""

    source: Source
    count: int
    tool: str | None = None
    server: str | None = None

    def of(self, count: int) -> "Span":
        """A span of `count` ids with the same source."""
        return self if count == self.count else Span(self.source, count, self.tool, self.server)

    def is_like(self, other: "Span") -> bool:
        """Whether both have the same source."""
        return self.source == other.source and self.tool == other.tool and self.server == other.server


@dataclass(frozen=True, slots=True)
class Sampled:
    """A turn that the engine sampled for this answer."""

    start: int
    """How many ids of the context precede it."""
    count: int
    ended_by: int | None
    """The id that ended it, which is not one of them; None if the model did not end it."""
    guessed: bool
    """Whether some ids were lost by the engine's stream and had to be chosen among several possibilities."""
    logprobs: Sequence[float | None] = ()
    """Log-probabilities of its ids and of the one that ended it; None: the engine did not say. Empty: not asked for."""


@dataclass(frozen=True, slots=True)
class TrajectoryAnswer:
    """One answer, as the engine held it."""

    answer_id: str
    before: str | None
    """The answer that it continues."""
    principal: str
    map_id: str
    model: str
    ended: str
    kept: int
    """How many ids at its beginning are the same as in the answer before."""
    ids: Sequence[int]
    """The ids after those."""
    spans: Sequence[Span]
    """The spans that make up `ids`."""
    sampled: Sequence[Sampled]


class TrajectoryLog(LineLog[TrajectoryAnswer]):
    """One file of trajectories."""

    def __init__(
        self,
        path: Path,
        metrics: AccessMetrics,
        *,
        logprobs: bool = False,
        secrets: Iterable[str] = (),
        model_digest: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Write nothing yet.

        Args:
            path: the file.
            metrics: where lost lines are counted.
            logprobs: whether the engine is to be asked for log-probabilities.
            secrets: values that must not appear in any name.
            model_digest: returns that of the model's file, if it is known; called once, outside the event loop.
        """
        self.logprobs = logprobs
        kind = LineKind(
            words="the trajectory file",
            setting="trajectories.path",
            render=_Writer(frozenset(secrets), model_digest).render,
            weigh=_weigh,
            dropped=metrics.trajectories_dropped,
            too_fast="answers came in faster than they could be written",
        )
        super().__init__(path, kind)


class _Writer:
    def __init__(self, secrets: frozenset[str], digest: Callable[[], str | None]) -> None:
        self._secrets = secrets
        self._digest = digest

    @cached_property
    def _model_digest(self) -> str | None:
        try:
            return self._digest()
        except (OSError, ConfigError):
            return None

    def render(self, when: datetime, answer: TrajectoryAnswer) -> str:
        return ascii_json(
            {
                "time": stamp(when),
                "id": answer.answer_id,
                "before": answer.before,
                "principal": cut_text(answer.principal, _NAME_CUT),
                "map": answer.map_id,
                "model": self._name(answer.model),
                "model_digest": self._model_digest,
                "ended": answer.ended,
                "kept": answer.kept,
                "ids": list(answer.ids),
                "spans": [self._span(span) for span in answer.spans],
                "sampled": [_sampled(turn) for turn in answer.sampled],
            }
        )

    def _span(self, span: Span) -> dict[str, Any]:
        named = {"tool": span.tool, "server": span.server}
        names = {key: self._name(name) for key, name in named.items() if name is not None}
        return {"source": span.source, "ids": span.count, **names}

    def _name(self, name: str) -> str:
        return mask_text(cut_text(name, _NAME_CUT), self._secrets)


def _sampled(turn: Sampled) -> dict[str, Any]:
    shown: dict[str, Any] = {"start": turn.start, "ids": turn.count, "ended_by": turn.ended_by, "guessed": turn.guessed}
    if turn.logprobs:
        shown["logprobs"] = [None if p is None or not isfinite(p) else round(p, 6) for p in turn.logprobs]
    return shown


def _weigh(answer: TrajectoryAnswer) -> int:
    return len(answer.ids) * _ID_BYTES + sum(len(turn.logprobs) for turn in answer.sampled) * _LOGPROB_BYTES
