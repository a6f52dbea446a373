"""The ids of one context, the model's last turn in them, and where each id came from.

The ids only ever grow at their end, so the engine's KV cache stays valid. Contents are spliced in between the pieces
that the template writes after a turn like the model's last one (`engine/rendering/template.py`). It asks no engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.context.compose.source_trail import SourceTrail, span_without_tool
from gateway.context.memory import LivedTurn
from gateway.engine.interface import Message
from gateway.engine.rendering.scaffold import WRITTEN, Scaffold, TurnEnd, TurnShape
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.observe.trajectories import Span

_NO_TURN = LivedTurn()


@dataclass(slots=True)
class Context:
    """Everything that the model was given or wrote, in order. Only its own methods change it."""

    ids: list[int]
    earlier: tuple[int, ...] = ()
    """Number of calls in each earlier turn that made any; the last turn is left out."""
    last: LivedTurn = _NO_TURN
    """The model's last turn."""
    sources: SourceTrail | None = None
    """Where the ids came from; None: nobody asks for it."""
    preamble: int = 0
    """Ids at its beginning that other conversations begin with too, if it was rendered whole; 0: not known."""
    question: int = 0
    """Ids up to the model's first turn after the user's last message; 0: not known."""
    begun: tuple[int, ...] = ()
    """Ids at its end that already begin the model's turn; () once the model has written."""
    defines: bool = False
    """Whether the template defines tools in it."""

    def splice(
        self, scaffold: Scaffold, contents: Sequence[Sequence[int]], sources: Sequence[Sequence[Span]] = ()
    ) -> None:
        """Append contents and the scaffold around them, which opens the model's next turn.

        `sources`: the spans of each content; they are read only where sources are kept.
        """
        self.ids += scaffold.pieces[0]
        for content, after in zip(contents, scaffold.pieces[1:], strict=True):
            self.ids += content
            self.ids += after
        if self.sources is not None:
            self.sources.add([Span("template", len(scaffold.pieces[0]))])
            for source, after in zip(sources, scaffold.pieces[1:], strict=True):
                self.sources.add([*source, Span("template", len(after))])
        if self.last.calls:
            self.earlier += (len(self.last.calls),)

    def write(self, ids: Sequence[int], turn: LivedTurn) -> None:
        """Append the model's turn."""
        self.ids += ids
        self.last, self.begun = turn, ()
        if self.sources is not None:
            self.sources.add([span_without_tool("model", len(ids))])

    def note_question(self, ids: int) -> None:
        """Note how many ids stand before the model's first turn after the user's last message; 0: it is not known."""
        self.question = ids

    def begin_turn(self, ids: Sequence[int]) -> None:
        """Append what a client has written of the model's turn."""
        self.ids += ids
        self.begun = tuple(ids)

    def last_turn(self, ready: ReadyEngine) -> tuple[TurnShape, TurnEnd]:
        """Return the shape and end of the model's last turn; calls that are text for the template are content."""
        turn, token_map, fmt = self.last, ready.token_map, ready.tool_format
        calls = () if fmt.calls_as_text else turn.calls
        shape = TurnShape(
            calls=tuple(call.name for call in calls),
            content=turn.content or (fmt.calls_as_text and bool(turn.calls)),
            reasoning=turn.reasoning,
            tools=self.defines and not fmt.preamble,
            earlier=self.earlier,
        )
        tail = self.ids[-WRITTEN:]
        end = TurnEnd(
            lambda: token_map.decode(filter(token_map.has_id, tail)), turn.end_text(token_map), turn.model_ids
        )
        return shape, end


def calls_of_turns(messages: Sequence[Message]) -> tuple[int, ...]:
    """Return the number of calls in each turn of a history that makes any."""
    return tuple(len(message["tool_calls"]) for message in messages if message.get("tool_calls"))
