"""From messages to the ids of a prompt: a remembered conversation keeps the ids that it has.

A conversation that its template only appends to is not rendered again: what the template writes around the new messages
is appended to the ids that the engine holds. Any other conversation is rendered as the model lived it, and each turn
that the rendering shows whole keeps its ids (the law of recall, docs/architecture.md). It does not generate.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from gateway.context.compose.conversation import Asked, Context, calls_of_turns
from gateway.context.compose.id_sources import (
    DefinitionCache,
    Definitions,
    DefinitionsIn,
    SourceTrail,
    spans_of_new,
    spans_of_rendering,
)
from gateway.context.history.template_messages import tool_definitions, with_model_ids, with_preamble
from gateway.context.memory import NO_TOOLS, DefinedTools, History, Lived, LivedTurn, Recalled, Turn, retold
from gateway.engine.interface import Message
from gateway.engine.rendering.prompt_ids import Known
from gateway.engine.rendering.scaffold import Scaffold, Shape, TurnEnd, TurnShape, joined, shape_of
from gateway.engine.rendering.template import is_json_result
from gateway.engine.rendering.template_forms import as_json
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import TemplateRefused
from gateway.observe.logs import get_logger
from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.registry import describe_tool, system_preamble
from gateway.toolcalls.parser import parser_for
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed
from gateway.toolcalls.stream.spelling import hidden_ids
from leaf_sdk.vocab import TokenMap

log = get_logger("agent")

_BARE: Final = ("{", "[", "`")
_DIGITS: Final = 4000
_ASKED: Final = 64
"""Most definitions of one request in the template's own form: each asks the engine, which has other work."""


@dataclass(frozen=True, slots=True)
class Composer:
    """Composes the context of one request's answer."""

    asked: Asked
    ready: ReadyEngine
    defined: DefinedTools = NO_TOOLS
    history: History | None = None
    """The messages, as a memory compares them; None: the answer is not remembered."""
    definitions: DefinitionCache | None = None
    """Finds where definitions of tools came from; None: nobody asks where ids came from."""

    async def begin(self, messages: Sequence[Message]) -> Context:
        """Return the context that messages begin, with nothing remembered of them.

        Raises `EngineUnavailable`, `MapDiffers`, `TemplateRefused`.
        """
        messages = [each for message in messages for each in retold(message)]
        return (await self._rendered([*map(Turn, messages)]))[0]

    async def go_on(self, recalled: Recalled, held: Sequence[int]) -> Context | None:
        """Return the context that continues a remembered answer; None where the template refuses what was lived.

        `held`: the ids that the conversation had at the end of that answer.

        Raises `EngineUnavailable`, `MapDiffers`.
        """
        try:
            shapes, shape = self.ready.shapes, self._shape(recalled)
            appends = shapes.appends(shape)
            appended = None if appends is False else await self._appended(recalled, held)
            if appends and appended is not None:
                return appended
            context, by_shape = await self._rendered((*recalled.lived, *recalled.new))
        except TemplateRefused:
            # What was lived has turns that the client does not know of: its own messages may still be accepted.
            log.warning("the template refuses a remembered conversation; the client's messages are rendered instead")
            return None
        if by_shape:
            shapes.note(shape, appended is not None and appended.ids == context.ids)
        return context

    async def _rendered(self, turns: Sequence[Turn]) -> tuple[Context, bool]:
        """Render turns; lived ones keep their ids where the template shows them whole. Also `Rendering.by_shape`.

        Raises `EngineUnavailable`, `TemplateRefused`.
        """
        ready, fmt, tools = self.ready, self.asked.format, self.defined.beginning
        taught, calls_as_text, token_map = ready.tool_format.preamble, ready.tool_format.calls_as_text, ready.token_map
        known: dict[int, Known] = {}
        messages: list[Message] = []
        # As in the client's copy of a turn, which the template shows.
        hidden = hidden_ids(token_map, fmt.markers)
        cut = any(turn.lived is not None and _is_cut_behind_calls(turn.lived.turn) for turn in turns)
        closing = await _closing(ready) if cut else ""
        for number, turn in enumerate(turns):
            if turn.lived is None:
                messages.append(turn.message)
                continue
            text = token_map.decode(token_id for token_id in turn.lived.ids if token_id not in hidden)
            messages.append(_message(turn.lived, text, fmt, calls_as_text=calls_as_text))
            known[number] = _known(turn.lived, text, fmt, ready, closing)
        messages = with_model_ids(messages, turns)
        plain = with_preamble(messages, fmt, tools, calls_as_text=calls_as_text) if taught else messages
        moved = len(plain) - len(messages)
        placed = {n + moved: each for n, each in known.items()} if moved else known
        rendering = await ready.template.prompt(
            plain,
            () if taught else tool_definitions(ready.forms.rendered(tools)),
            placed,
            partial(_calls_in, fmt, token_map, self.defined.tools),
        )
        sources = None
        if self.definitions is not None:
            sources = SourceTrail()
            sources.add(spans_of_rendering(rendering, turns, moved, self.asked.owner_of, self._definitions()))
        earlier = calls_of_turns([turn.message for turn in turns])
        question = _question(turns, len(rendering.ids))
        context = Context(
            *(rendering.ids, earlier),
            sources=sources,
            preamble=rendering.preamble,
            question=question,
            defines=bool(tools),
        )
        return context, rendering.by_shape

    def _definitions(self) -> DefinitionsIn | None:
        """What finds the definitions of the request's tools."""
        ready, history, cache, asked = self.ready, self.history, self.definitions, self.asked
        tools = self.defined.beginning
        if not tools or history is None or cache is None:
            return None
        servers = tuple([asked.owner_of(tool.name) for tool in tools])

        def definitions() -> Definitions:
            taught = system_preamble(asked.format, tools) if ready.tool_format.preamble else ""
            by_name = {tool.name: server for tool, server in zip(tools, servers, strict=True)}
            return Definitions(tools, ready.token_map, by_name, taught)

        # The root is a digest of the map, among others.
        key = (history.root, self.defined.digests, servers)
        return lambda ids, around: cache.spans(ids, around, key, definitions)

    async def _appended(self, recalled: Recalled, held: Sequence[int]) -> Context | None:
        """The held ids with the new messages and their scaffold appended; None where these are not a simple turn."""
        last, new = recalled.lived[-1].lived, recalled.new
        turn = last.turn if last is not None else None
        results = [each for each in new if each.message["role"] == "tool"]
        if turn is None or len(results) != len(turn.calls) or len(new) != max(len(results), 1):
            return None
        template, token_map = self.ready.template, self.ready.token_map
        # Only the ids of a lived result are kept, so it may be JSON.
        if any(each.lived is not None or is_json_result(each.message) for each in results) and (
            await template.reads_results()
        ):
            return None
        sources = None if self.definitions is None else SourceTrail(len(held))
        earlier = calls_of_turns([each.message for each in recalled.lived[:-1]])
        context = Context(list(held), earlier, turn, sources, defines=bool(self.defined.beginning))
        shape, end = context.last_turn(self.ready)
        try:
            if results:
                scaffold = await template.scaffold(shape, end, "tool", len(turn.calls))
            elif new[0].message["role"] == "user":
                scaffold = await template.scaffold(shape, end, "user")
            else:
                return None
        except TemplateRefused:
            return None
        contents: list[Sequence[int]] = []
        pieces = [*scaffold.pieces]
        for number, (message, lived) in enumerate((each.message, each.lived) for each in new):
            ids = token_map.encode(str(message.get("content") or "")) if lived is None else lived.ids
            ids = scaffold.fitted(number, ids, token_map)
            if lived is None:
                ids, after = joined(ids, pieces[number + 1], token_map)
                pieces[number + 1] = tuple(after)
            contents.append(ids)
        context.splice(
            Scaffold(tuple(pieces), scaffold.fits),
            contents,
            () if sources is None else spans_of_new(recalled, contents, self.asked.owner_of),
        )
        context.note_question(_question((*recalled.lived, *new), len(context.ids)))
        return context

    def _shape(self, recalled: Recalled) -> Shape:
        messages = [
            {**turn.message, "content": "."} if turn.lived is not None and turn.lived.turn is None else turn.message
            for turn in (*recalled.lived, *recalled.new)
        ]
        # Turns that the model continued from within one answer: nothing was rendered after them.
        turns = ([each for each in node.lived if each.turn is not None] for node in recalled.last.chain())
        spliced = {id(turn) for lived in turns for turn in lived[:-1]}
        inside = {number for number, turn in enumerate(recalled.lived) if id(turn.lived) in spliced}
        forms = {
            number: f" {turn.lived.turn.ended_by} {turn.lived.turn.form}"
            for number, turn in enumerate(recalled.lived)
            if turn.lived is not None and turn.lived.turn is not None
        }
        return shape_of(messages, len(recalled.new), tools=bool(self.defined.beginning), inside=inside, forms=forms)


async def with_texts(defined: DefinedTools, ready: ReadyEngine) -> DefinedTools:
    """Return the definitions with the texts of those that stand behind messages."""
    wanted = [each for each in defined.entries if each.place >= 0 and not each.text and each.spec is not None]
    if not wanted:
        return defined
    texts = await definition_texts([each.spec for each in wanted if each.spec is not None], ready)
    found = {id(each): text for each, text in zip(wanted, texts, strict=True)}
    return DefinedTools(tuple(replace(each, text=found.get(id(each), each.text)) for each in defined.entries))


async def definition_texts(tools: Sequence[ToolSpec], ready: ReadyEngine) -> list[str]:
    """Return the text of each definition as the model's template or preamble writes it."""
    if ready.tool_format.preamble:
        return [describe_tool(tool) for tool in tools]
    # In the form that the template can show; a tool that it can't show is not offered.
    forms = [next(iter(ready.forms.rendered([tool])), tool) for tool in tools]
    definitions = tool_definitions(forms)
    return [
        await ready.template.definition(each) if number < _ASKED else as_json(each)
        for number, each in enumerate(definitions)
    ]


def _question(turns: Sequence[Turn], size: int) -> int:
    """How many of `size` ids stand before the model's first turn after the user's last message; 0: it is not known."""
    last = max((n for n, turn in enumerate(turns) if turn.message["role"] == "user"), default=-1)
    if last == len(turns) - 1:
        return size
    answer = turns[last + 1].lived
    start = answer.turn.start if answer is not None and answer.turn is not None else None
    return start if start is not None and start < size else 0


def _message(lived: Lived, text: str, fmt: Format, *, calls_as_text: bool) -> Message:
    """A lived message for the template: a result with its text, a turn whose calls it can't show as its text."""
    role = {key: value for key, value in lived.message.items() if key != "tool_calls"}
    if lived.turn is None:
        return {**role, "content": text}
    if not (lived.turn.broken or (calls_as_text and lived.turn.calls)):
        return lived.message
    whole = lived.turn.broken and not lived.turn.reasoning
    words = text if whole else _words(lived.message, text, fmt)
    return lived.message if words is None else {**role, "content": words}


def _words(message: Message, text: str, fmt: Format) -> str | None:
    """A turn's content and calls as they were written, without its reasoning; None where that can't be determined."""
    thought = str(message.get("reasoning_content") or "").strip()
    start = max(text.find(thought), 0) + len(thought)
    if not fmt.opening or (calls := text.find(fmt.opening, start)) < 0:
        return None if thought else text
    content = str(message["content"]).strip()
    before = text[:calls].rstrip()
    return text[len(before) - len(content) if content and before.endswith(content) else calls :]


def _known(lived: Lived, text: str, fmt: Format, ready: ReadyEngine, closing: str) -> Known:
    turn = lived.turn
    if turn is None:
        return Known(lived.ids)
    calls = () if ready.tool_format.calls_as_text else tuple((call.name, _value(call)) for call in turn.calls)
    return Known(lived.ids, text, calls, turn.end_text(ready.token_map) or closing, _is_unmarked(text, fmt))


def _is_unmarked(text: str, fmt: Format) -> bool:
    """Whether a turn that makes calls is nothing but these, as bare JSON or in a fence, without the format's marker."""
    return text.lstrip()[:1] in _BARE and not (fmt.opening and fmt.opening in text)


def _is_cut_behind_calls(turn: LivedTurn | None) -> bool:
    """Whether a limit ended a turn after it had made calls."""
    return turn is not None and bool(turn.calls) and turn.ended_by is None


async def _closing(ready: ReadyEngine) -> str:
    """The text of the token with which the template ends a turn of the model; "" where it uses none."""
    token_map = ready.token_map
    try:
        scaffold = await ready.template.scaffold(TurnShape(content=True), TurnEnd(), "user")
    except TemplateRefused:
        return ""
    ends = (token_id for token_id in scaffold.pieces[0] if token_id in token_map.special_ids)
    return next((token_map.token_bytes(token_id).decode("utf-8", "replace") for token_id in ends), "")


def _value(call: CallClosed) -> object:
    return json.loads(call.arguments, parse_int=_integer)


def _integer(text: str) -> int | str:
    # Python refuses to read longer ones, which a model may write.
    return int(text) if len(text) <= _DIGITS else text


def _calls_in(fmt: Format, token_map: TokenMap, tools: Sequence[ToolSpec], text: str) -> list[tuple[str, object]]:
    parser = parser_for(fmt, token_map, tools, by_text=True)
    events = [*parser.feed(token_map.encode(text, specials=True)), *parser.close()]
    return [(event.name, _value(event)) for event in events if isinstance(event, CallClosed)]
