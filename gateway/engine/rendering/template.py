"""Messages into prompt ids, and the ids between turns: the engine renders, the rest is pure.

The engine renders its own chat template; `foreign_text.py` replaces the words of others before that, and
`prompt_ids.py` turns the rendering into ids. So a control token can only come from the template, never from a message
or a tool, and the ids of a content do not depend on its neighbours. What the template writes after a turn of the model
(`scaffold.py`) is asked once for each shape of turn and kept. It does not know tool-call formats or limits.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import anyio.to_thread

from gateway.engine.interface import Engine, EngineFacts, Message, Options
from gateway.engine.rendering.foreign_text import (
    ForeignText,
    Mark,
    MarkerGuard,
    Signs,
    find_marks,
    restored,
    shown_once,
)
from gateway.engine.rendering.prompt_ids import (
    CallsIn,
    Known,
    Part,
    PieceCache,
    Region,
    content_region,
    rendered_ids,
    turn_regions,
)
from gateway.engine.rendering.scaffold import (
    Following,
    Role,
    Scaffold,
    TurnEnd,
    TurnShape,
    counting,
    definitions,
    following,
    layouts,
)
from gateway.engine.rendering.template_forms import Numbered, around, as_json, definition_in, histories
from gateway.errors import EngineRefused, TemplateRefused
from gateway.escape import cut_text
from gateway.toolcalls.schema.keywords import is_larger
from leaf_sdk.vocab import TokenMap

_LARGE = 5_000
"""Values in definitions of tools from which on they are prepared in a thread: each takes up to 20 us."""
_CHARACTERS = 10
"""Characters of a call's arguments that count as a value, at least."""
_KEPT = 256
"""Shapes of turns for which the text that follows is remembered."""
_SHOWN = 200
NO_OPTIONS: Final[Options] = {}
_STANDING = ("system", "developer")
"""Roles of messages that conversations share."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """A conversation as ids."""

    ids: list[int]
    by_shape: bool
    """Whether the template's own text depends only on roles, names and arguments, and on which contents are empty."""
    parts: Sequence[Part]
    """Whose ids they are; the messages are those of `form`."""
    form: Sequence[Numbered] = ()
    """The conversation in the form that the template accepted."""

    @property
    def preamble(self) -> int:
        """Ids before the first content that is not a system message: other conversations begin with them too."""
        ids = 0
        for part in self.parts:
            if part.message is not None and self.form[part.message][1]["role"] not in _STANDING:
                return ids
            ids += part.ids
        return 0


def is_json_result(message: Message) -> bool:
    """Whether a message is a tool result that looks like JSON: some templates parse those."""
    return message["role"] == "tool" and str(message.get("content") or "").lstrip()[:1] in ("{", "[")


def argument_characters(messages: Sequence[Message]) -> int:
    """How long the arguments of all calls are: every name and text in them is looked at."""
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    return sum(len(text) for call in calls if isinstance(text := call["function"].get("arguments"), str))


class ChatTemplate:
    """The chat template of one running engine, under one map."""

    def __init__(self, engine: Engine, facts: EngineFacts, token_map: TokenMap, options: Options = NO_OPTIONS) -> None:
        """`options`: variables for the template besides the messages (`foreign_text.py`)."""
        self.options = options
        self._engine = engine
        self._facts = facts
        self._map = token_map
        self._signs = Signs(MarkerGuard(token_map.special_texts))
        self._pieces = PieceCache(token_map, self._signs.separator)
        self._results_read: bool | None = None
        self._late_system: bool | None = None
        self._reasoning_dropped: bool | None = None
        self._without_definition: str | None = None
        self._definitions: OrderedDict[str, str] = OrderedDict()
        """Texts of definitions, by their JSON texts."""
        self._counts: bool | None = None
        """Whether what follows a turn depends on the number of calls before it."""
        # Cached by identity: a `Following` is the same object for as long as it is kept.
        self._scaffold_of = lru_cache(_KEPT)(self._without_ids)
        self._following: OrderedDict[tuple[TurnShape, Role, int], Following] = OrderedDict()

    def with_options(self, options: Options) -> "ChatTemplate":
        """Return the same template with those options that its text mentions; others would have no effect.

        If the template's text is not known, all options are passed on, and the engine ignores those.
        """
        text, known = self._facts.chat_template, options
        if self._facts.can.shows_template:
            known = {key: value for key, value in options.items() if re.search(rf"\b{key}\b", text)}
        return ChatTemplate(self._engine, self._facts, self._map, known)

    async def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        known: Mapping[int, Known] | None = None,
        calls_in: CallsIn = lambda text: (),
    ) -> "Rendering":
        """Prompt ids of a conversation, ready for the model's next turn.

        Args:
            messages: in OpenAI's format, each `content` a string or absent.
            tools: definitions in OpenAI's format, only for templates that support tools.
            known: ids of messages by their numbers; they are used where the template shows these messages whole.
            calls_in: reads the calls in a text of the kind that the model writes.

        Raises `TemplateRefused` when the template rejects the conversation in every form (`template_forms.py`).
        """
        refusal: TemplateRefused | None = None
        for history in histories(messages):
            places = ((place, number) for place, (number, _) in enumerate(history) if number is not None)
            kept = {place: known[number] for place, number in places if number in known} if known else {}
            try:
                prompt = await self._prompt(history, tools, kept, calls_in)
            except TemplateRefused as error:
                refusal = refusal or error
                continue
            bos = list(self._facts.bos)
            if prompt.ids[: len(bos)] == bos:
                return prompt
            return replace(prompt, ids=bos + prompt.ids, parts=[Part(len(bos)), *prompt.parts])
        raise refusal or self._no_place("messages")

    async def _prompt(
        self,
        form: Sequence[Numbered],
        tools: Sequence[Mapping[str, Any]],
        known: Mapping[int, Known],
        calls_in: CallsIn,
    ) -> "Rendering":
        messages = [message for _, message in form]
        results = {number for number, message in enumerate(messages) if is_json_result(message)}
        read = results if results and await self.reads_results() else frozenset[int]()
        foreign = ForeignText(self._signs)
        text = await self._shown(foreign, messages, tools, marked=True, as_text=read)
        text = restored(text, foreign)
        marks = shown_once(text, foreign)
        if marks is not None:
            turns = turn_regions(text, marks, foreign, messages, known, calls_in)
            ids, parts = rendered_ids(text, self._with_contents(marks, turns, foreign, known), self._pieces)
            return Rendering(ids, not read, parts, form)
        if foreign.results and foreign.results.isdisjoint(s.number for s in find_marks(text, foreign.mark)):
            raise self._no_place("tool results")
        # The template reads or rewrites a content, so it gets the contents themselves, guarded like everything else.
        foreign = ForeignText(self._signs)
        text = await self._shown(foreign, messages, tools, marked=False)
        ids, parts = rendered_ids(restored(text, foreign), (), self._pieces)
        return Rendering(ids, by_shape=False, parts=parts, form=form)

    async def _shown(
        self,
        foreign: ForeignText,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        *,
        marked: bool,
        as_text: Set[int] = frozenset(),
    ) -> str:
        """The rendering of a conversation. Prepared in a thread where it holds very many names and values."""

        def prepare() -> tuple[Sequence[Message], Sequence[Mapping[str, Any]]]:
            return foreign.messages(messages, marked=marked, as_text=as_text), foreign.tools(tools)

        large = is_larger(tools, _LARGE) or argument_characters(messages) > _LARGE * _CHARACTERS
        return await self._render(*(await anyio.to_thread.run_sync(prepare) if large else prepare()))

    def _with_contents(
        self, marks: Sequence[Mark], turns: Sequence[Region], foreign: ForeignText, known: Mapping[int, Known]
    ) -> Iterator[Region]:
        """All regions of a rendering in order: the turns, and the contents outside them.

        One by one, since the ids of all contents together are as many as those of the prompt.
        """
        waiting, end = deque(turns), 0
        for mark in marks:
            while waiting and waiting[0].start <= mark.start:
                turn = waiting.popleft()
                end = turn.end
                yield turn
            if mark.start >= end:
                number = foreign.owners[mark.number]
                result = known[number].ids if number in known and mark.number in foreign.results else None
                yield content_region(mark, foreign, self._map, result)
        yield from waiting

    async def reads_results(self) -> bool:
        """Whether the template reads a JSON result and shows it in another form (Gemma 4's first one); asked once."""
        if self._results_read is None:
            said = '{"keyed": ["saidhere"]}'
            messages, _ = next(layouts(TurnShape(("tool",)), "tool", [said], ForeignText(self._signs)))
            try:
                text = await self._engine.apply_template(messages)
            except EngineRefused:
                text = said
            # A template without a place for results drops it, and so reads none.
            self._results_read = said not in text.replace('\\"', '"') and "saidhere" in text
        return self._results_read

    async def shows_late_system(self) -> bool:
        """Whether system messages other than the first are shown, and in their place; asked once."""
        if self._late_system is None:
            roles = ("user", "system", "assistant", "user", "system")
            words = ("firstasked", "firsttold", "firstsaid", "thenasked", "thentold")
            turns = [{"role": role, "content": each} for role, each in zip(roles, words, strict=True)]
            try:
                text = await self._engine.apply_template(turns)
            except EngineRefused:
                text = ""
            places = [text.find(each) for each in words]
            self._late_system = -1 not in places and places == sorted(places)
        return self._late_system

    async def drops_reasoning(self) -> bool:
        """Whether what the model thought is left out once the user has spoken again; asked once."""
        if self._reasoning_dropped is None:
            turn = {"role": "assistant", "content": "firstsaid", "reasoning_content": "firstthought"}
            asked = {"role": "user", "content": "asked"}
            try:
                text = await self._ask([asked, turn, asked], ())
            except EngineRefused:
                text = ""
            self._reasoning_dropped = "firstsaid" in text and "firstthought" not in text
        return self._reasoning_dropped

    async def definition(self, definition: Mapping[str, Any]) -> str:
        """A tool's definition as the template writes it, for a content; as JSON where that can't be found out."""
        key = as_json(definition)
        if key not in self._definitions:
            self._definitions[key] = await self._definition(definition) or key
            if len(self._definitions) > _KEPT:
                self._definitions.popitem(last=False)
        self._definitions.move_to_end(key)
        return self._definitions[key]

    async def _definition(self, definition: Mapping[str, Any]) -> str | None:
        question = [{"role": "user", "content": "-"}]
        try:
            if self._without_definition is None:
                self._without_definition = await self._ask(question, around(None))
            # The words of others need no guard here: as part of a content, they are guarded like all of it.
            return definition_in(await self._ask(question, around(definition)), self._without_definition)
        except EngineRefused:
            return None

    async def scaffold(self, shape: TurnShape, end: TurnEnd, role: Role, count: int = 1) -> Scaffold:
        """Ids around `count` contents of `role` that follow a turn of the model.

        `shape` and `end`: those of that turn. The engine is asked once for each shape. Raises `TemplateRefused` if the
        template can't show such turns in any form.
        """
        found = await self._known(shape, role, count)
        start = found.end_of_turn(end)
        if start is None:
            # The model wrote its calls differently than the template does: use what follows a turn of words.
            found, start = await self._known(replace(shape, calls=()), role, count), 0
        if end.call_ids and found.shows_ids:
            return found.scaffold(start, end.call_ids, self._map)
        return self._scaffold_of(found, start)

    def _without_ids(self, found: Following, start: int) -> Scaffold:
        return found.scaffold(start, (), self._map)

    async def scaffold_with(self, shape: TurnShape, end: TurnEnd, contents: Sequence[str]) -> Scaffold:
        """Ids of results and of everything around them as one piece, for a template that `reads_results`."""
        foreign = ForeignText(self._signs)
        found = await self._first(shape, "tool", [foreign.text(content) for content in contents], foreign)
        return found.scaffold(found.end_of_turn(end) or 0, end.call_ids, self._map)

    async def _known(self, shape: TurnShape, role: Role, count: int) -> Following:
        if self._counts is None and shape.calls:
            bare = replace(shape, earlier=())
            first, second = await self._find(bare, role, count), await self._find(counting(bare), role, count)
            self._counts = first.plain != second.plain
        if not self._counts:
            shape = replace(shape, earlier=())
        key = (shape, role, count)
        if key not in self._following:
            self._following[key] = await self._find(shape, role, count)
            if len(self._following) > _KEPT:
                self._following.popitem(last=False)
        self._following.move_to_end(key)
        return self._following[key]

    async def _find(self, shape: TurnShape, role: Role, count: int) -> Following:
        foreign = ForeignText(self._signs)
        return await self._first(shape, role, [foreign.content("-") for _ in range(count)], foreign)

    async def _first(self, shape: TurnShape, role: Role, contents: Sequence[str], foreign: ForeignText) -> Following:
        """What follows in the first layout that the template accepts."""
        refusal: TemplateRefused | None = None
        for messages, in_call in layouts(shape, role, contents, foreign):
            try:
                text = await self._render(messages, definitions(shape, foreign))
            except TemplateRefused as error:
                refusal = refusal or error
                continue
            found = following(text, foreign, in_call=in_call)
            if found is not None:
                return found
        raise refusal or self._no_place(f"turns with the role {role!r}")

    def _no_place(self, what: str) -> TemplateRefused:
        return TemplateRefused(f"the chat template of {self._facts.model!r} does not show all {what} once and in order")

    async def refusal_of(self, tools: Sequence[Mapping[str, Any]]) -> str | None:
        """Why a conversation with these definitions of tools, and nothing else of note, can't be rendered."""
        try:
            await self._ask([{"role": "user", "content": "-"}], ForeignText(self._signs).tools(tools))
        except EngineRefused as error:
            # llama.cpp's template engine names the place first, and what failed there in the last line.
            return cut_text(
                self._signs.removed(error.message).strip().rpartition("\n")[2].removeprefix("Error: "), _SHOWN
            )
        return None

    async def _render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        try:
            return await self._ask(messages, tools)
        except EngineRefused as error:
            said = self._signs.removed(error.message)
            words = f"the chat template of {self._facts.model!r} refuses the conversation: {said}"
            raise TemplateRefused(words) from error

    async def _ask(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        if not self.options:
            return await self._engine.apply_template(messages, tools)
        return await self._engine.apply_template(messages, tools, self.options)
