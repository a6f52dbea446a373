"""What the model writes in one generation: its ids, and what they say.

`ModelOutput` turns ids as the engine gives them into the events of an answer, up to a stop string or the only call
allowed, and at the end into the turn that memory and trajectories keep. It joins the tool-call parser, the stop strings
and the hold on the id that may be the end of turn, which don't know each other. It knows no engine and never waits.
"""

from collections.abc import Container, Sequence
from dataclasses import replace
from itertools import starmap, zip_longest

from gateway.agent.events import AgentEvent, ContentSampled, IdsGenerated, TokenLogprob
from gateway.agent.generate.generation_options import GenerationOptions
from gateway.agent.generate.stop_strings import StopFilter
from gateway.context.compose.conversation import Asked, Conversation
from gateway.context.history.template_messages import CallIds
from gateway.context.memory import Call, LivedTurn
from gateway.context.memory.remembered import cut_turn
from gateway.engine.interface import Generated, GenerationEnd, shared_prefix
from gateway.observe.logs import get_logger
from gateway.observe.trajectories import Sampled
from gateway.toolcalls.parser import parser_for
from gateway.toolcalls.stream.output_events import (
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Event,
    Policy,
    Reasoning,
)
from gateway.toolcalls.stream.spelling import hidden_ids

# The last id of a generation may be the end of turn, which does not belong to it: a special id is held back until
# another id follows or the engine says what ended the generation. Pure.


class EndHold:
    """Holds back the id that may be the end of turn."""

    def __init__(self, specials: Container[int]) -> None:
        """`specials`: the ids that could end a turn."""
        self._specials = specials
        self._held: Sequence[int] = ()

    def feed(self, ids: Sequence[int]) -> Sequence[int]:
        """Take at least one id; return those that are certainly not the end of turn."""
        if not self._held and ids[-1] not in self._specials:
            return ids
        ids = [*self._held, *ids]
        self._held = ids[-1:] if ids[-1] in self._specials else ()
        return ids[: len(ids) - len(self._held)]

    def close(self, ended_by: int | None) -> Sequence[int]:
        """Return what is held, without the id that ended the turn, if one did."""
        held, self._held = self._held, ()
        return held if ended_by is None else ()

    def drop(self) -> None:
        """Forget what is held."""
        self._held = ()


log = get_logger("agent")


class ModelOutput:
    """The output of one generation. Feed it what the engine gives, close it, then call `remember`."""

    def __init__(self, conversation: Conversation, options: GenerationOptions) -> None:
        self._conversation = conversation
        self._options = options
        ready, asked = conversation.ready, conversation.asked
        self._call_ids = CallIds()
        self._hidden = hidden_ids(ready.token_map, (*asked.format.markers, *options.stops))
        self._parser = parser_for(
            asked.format,
            ready.token_map,
            conversation.tools if asked.may_call and not options.words else (),
            prompt_tail=conversation.prompt_tail,
            # A grammar lets any tokens spell a marker, since not every server's grammars know tokens.
            by_text=options.hold is not None and not options.hold.triggers,
            policy=_policy(asked, options),
            formed=options.hold is not None and options.hold.formed,
            new_id=self._call_ids.make,
            hidden=self._hidden,
        )
        # The parser reads the begun text too, so that it reads what the model writes as its continuation; no events
        # are emitted for it.
        self._parser.feed(conversation.context.begun)
        self._begun = bool(conversation.context.begun)
        self.stops = StopFilter(options.stops)
        self._hold = EndHold(ready.token_map.special_ids)
        self.prompt = len(conversation.ids)
        """Ids of the context before it."""
        self.ids: list[int] = []
        """Its ids that stay in the context."""
        self.calls: list[CallClosed] = []
        self._model_ids: list[str] = []
        """The ids of these calls as the model knows them."""
        self.over = self._has_its_call = False
        """Whether no more output is wanted: a stop string appeared, or the only call allowed was made."""
        self.guessed = False
        self._started = self._known = 0
        """Started calls, and those of them that a client sends back."""
        self.indexes: dict[int, int] = {}
        """The index of each reported call in this generation, if it broke off too, and its index in the response."""
        self._logprobs: list[float | None] = []
        """Log-probabilities of all ids that arrived, including those that end a turn."""
        self._waiting: list[TokenLogprob] = []
        """Ids that have not been read yet, where probabilities are asked for."""
        self._weighed: list[TokenLogprob] = []
        """Ids since the last reported text, where probabilities are asked for."""
        self._content: list[str] = []
        self._said_at_call = 0
        """Pieces of content before the end of the last whole call."""
        self._reasoning: list[str] = []
        self.reasoned = 0
        """Ids of reasoning."""
        self._reasoned_to = self._said_before = 0
        """Ids up to the last piece of reasoning; pieces of content and calls before it."""
        self._told: list[str] = []
        """Content that has passed the stop strings."""

    def feed(self, generated: Generated) -> list[AgentEvent]:
        """Take the next ids, at least one; return the events that they give."""
        self.guessed |= generated.guessed
        if generated.logprobs:
            self._weigh(generated)
        ids = self._hold.feed(generated.ids)
        if ids and self._has_its_call:
            self.over = True
            return []
        told = self._read(ids)
        self.over = self.stops.hit
        return told

    def close(self, ended_by: int | None) -> list[AgentEvent]:
        """Take the end of the generation; return the events of what was held back.

        `ended_by`: the id with which the model ended its turn, if it did.
        """
        told = self._read(self._hold.close(ended_by))
        self._tell(self._parser.close(whole=ended_by is not None), told)
        self._show(self.stops.close(), told)
        return told

    def rewind(self) -> None:
        """Forget ids that were sampled but not reported: they are sampled again."""
        self._hold.drop()
        del self._logprobs[len(self.ids) :]
        self._waiting.clear()

    def _weigh(self, event: Generated) -> None:
        """Keep the ids' probabilities, for a trajectory and for the client."""
        self._logprobs += event.logprobs
        if self._options.logprobs is not None:
            self._waiting += starmap(TokenLogprob, zip_longest(event.ids, event.logprobs, event.tops, fillvalue=()))

    def _read(self, ids: Sequence[int]) -> list[AgentEvent]:
        told: list[AgentEvent] = []
        self.ids += ids
        if ids and self._options.ids:
            told.append(IdsGenerated(tuple(ids)))
        if not self._waiting:
            self._tell(self._parser.feed(ids), told)
            return told
        # One by one, since content is reported with the probabilities of its ids.
        for token_id in ids:
            if self._waiting and self._waiting[0].token_id == token_id:
                self._weighed.append(self._waiting.pop(0))
            self._tell(self._parser.feed((token_id,)), told)
        return told

    def _tell(self, events: list[Event], told: list[AgentEvent]) -> None:
        for event in events:
            if self._has_its_call:
                break
            if isinstance(event, Content):
                self._content.append(event.text)
                self._show(self.stops.feed(event.text), told)
            elif not self.stops.hit:
                # A stop string never spans other events: content held back for one comes before this event.
                self._show(self.stops.close(), told)
                if (shown := self._indexed(event)) is not None:
                    told.append(shown)
                self._weighed.clear()

    def _show(self, text: str, told: list[AgentEvent]) -> None:
        if not text:
            return
        self._told.append(text)
        if self._weighed:
            told.append(ContentSampled(tuple(self._weighed)))
            self._weighed.clear()
        told.append(Content(text))

    def _indexed(self, event: Event) -> Event | None:
        """The event as the response reports it; None where it belongs to a call that is not reported."""
        if isinstance(event, Diagnostic) and event.cause is not None:
            name = self._conversation.asked.format.name
            log.error("the parser of a tool-call format failed", tool_format=name, exc_info=event.cause)
        if isinstance(event, Reasoning):
            self._note_reasoning(event.text)
        if isinstance(event, Content | Reasoning) or event.index is None:
            return event
        if isinstance(event, CallStarted):
            event = self._start(event)
        elif isinstance(event, CallClosed):
            event = self._close(event)
        index = None if event.index is None else self.indexes.get(event.index)
        if index is None:
            return replace(event, index=None) if isinstance(event, Diagnostic) else None
        return replace(event, index=index)

    def _start(self, call: CallStarted) -> CallStarted:
        """Note a call that begins; return it with an id of the gateway's own."""
        self._started += 1
        self._known += self._options.shows(call.name)
        if self._options.tells(call.name):
            self.indexes[call.index] = self._options.first_index + len(self.indexes)
        return replace(call, id=self._call_ids.ours(call.id))

    def _close(self, call: CallClosed) -> CallClosed:
        """Note a whole call, and report it to whoever runs it; return it with an id of the gateway's own."""
        self._model_ids.append(call.id)
        self._said_at_call = len(self._content)
        ours = replace(call, id=self._call_ids.ours(call.id))
        self.calls.append(ours)
        self._has_its_call = self._options.one_call
        self._options.on_call(ours, self._conversation.room - len(self.ids))
        return ours

    def _note_reasoning(self, text: str) -> None:
        """Keep reasoning and count its ids: all since its last piece, or just one if other things came in between."""
        said, ids = len(self._content) + self._started, len(self.ids)
        before, self._said_before = self._said_before, said
        self.reasoned += ids - self._reasoned_to if said == before else 1
        self._reasoned_to = ids
        self._reasoning.append(text)

    def remember(self, end: GenerationEnd | None) -> None:
        """Append the ids to the conversation and note the turn, however the generation ended."""
        conversation = self._conversation
        turn = LivedTurn(
            tuple(self.calls),
            self._begun or bool(self._content),
            bool(self._reasoning),
            end.ended_by if end is not None else None,
            broken=self._started > len(self.calls),
            model_ids=tuple(self._model_ids),
        )
        conversation.context.write(self.ids, turn)
        if conversation.observer is not None:
            conversation.observer.sampled.append(self._sampled(end))
        self._note_turn(turn, cut=end is None and not self._has_its_call)

    def _sampled(self, end: GenerationEnd | None) -> Sampled:
        ended_by = end.ended_by if end is not None else None
        guessed = self.guessed or (end is not None and end.missed > 0)
        logprobs = tuple(self._logprobs[: len(self.ids) + (ended_by is not None)])
        return Sampled(self.prompt, len(self.ids), ended_by, guessed, logprobs)

    def _note_turn(self, turn: LivedTurn, *, cut: bool) -> None:
        """Note the turn as the model lived it and as the client saw it. `cut`: the client saw less of it."""
        conversation, lived = self._conversation, self._conversation.lived
        content, reasoning, told = "".join(self._content), "".join(self._reasoning), "".join(self._told)
        lived.content.append(told)
        lived.reasoning.append(reasoning)
        for call in self.calls:
            if self._options.shows(call.name):
                lived.calls.append(Call(call.id, call.name, call.arguments))
            elif self._options.asks(call):
                # Its client approves, and sends back, a call of the tool itself.
                lived.calls.append(Call(call.id, call.name, call.arguments))
        ids: Sequence[int] | None = self.ids
        if cut:
            ids = cut_turn(self.ids, content, told, conversation.ready.token_map, self._hidden)
            content = told
        # A client that knows of a call that broke off may send anything back.
        astray = turn.broken and self._known
        if turn.broken and self.calls and not cut:
            # Behind whole calls, half a call can't be rendered: the turn is remembered without it.
            ids, turn = self._whole_calls(), replace(turn, broken=False)
        if ids is None or astray or (cut and self.calls):
            lived.whole = False
        else:
            own = shared_prefix(ids, self.ids) if cut else len(ids)
            lived.add_turn(self.prompt, ids, content, reasoning, turn, own)

    def _whole_calls(self) -> Sequence[int] | None:
        """The ids up to the last whole call; None where its place is not known, or where words follow it."""
        last = list(self.calls[-1].ids)
        if not last or len(self._content) > self._said_at_call:
            return None
        for end in range(len(self.ids), len(last) - 1, -1):
            if self.ids[end - len(last) : end] == last:
                return self.ids[:end]
        return None


def _policy(asked: Asked, options: GenerationOptions) -> Policy:
    """What becomes of faulty calls: the model is told about those of the gateway's tools, and may call again."""
    if not (asked.tools and asked.may_call) or options.words:
        # Where nothing may be called, nothing is a call, whatever the model writes.
        return Policy(unknown_tool="content")
    ours = (tool.name for tool in asked.tools if tool.name not in asked.client_tools)
    hidden = asked.may_be_deferred if asked.search is not None else None
    return Policy(answered=frozenset(ours), hidden_tool=hidden)
