"""From messages to prompt ids, and the ids that stand between turns: the engine is asked, the rest is pure.

The engine renders its own chat template; `foreign.py` says what it is given in place of the words of others, and
`rendered.py` makes ids of what comes back. So a control token can only come from the template, never from a message or
a tool, and the ids of a content do not depend on its neighbours. What the template writes behind a turn of the model
(`scaffold.py`) is asked once for each shape of turn and kept. It does not know tool-call formats or limits.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from gateway.engine.foreign import Foreign, Signs, is_json_result
from gateway.engine.histories import Numbered, histories
from gateway.engine.interface import Engine, EngineFacts, Message, Options
from gateway.engine.markers import MarkerGuard
from gateway.engine.placed import CallsIn, Known, regions
from gateway.engine.rendered import (
    Part,
    PieceCache,
    Region,
    Slot,
    content_region,
    find_slots,
    rendered_ids,
    restored,
    shown_once,
)
from gateway.engine.scaffold import (
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
from gateway.engine.template_options import NO_OPTIONS
from gateway.errors import EngineRefused, TemplateRefused
from leaf_sdk.vocab import TokenMap

_KEPT = 256
"""Shapes of turns whose following text is remembered."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation as ids."""

    ids: list[int]
    by_shape: bool
    """Whether the template's own text depends on nothing but roles, names, arguments, and what is empty."""
    parts: Sequence[Part]
    """Whose they are; the messages are those of `form`."""
    form: Sequence[Numbered] = ()
    """The conversation in the form that the template took."""


class ChatTemplate:
    """The chat template of one running engine, under one map."""

    def __init__(self, engine: Engine, facts: EngineFacts, token_map: TokenMap, options: Options = NO_OPTIONS) -> None:
        """`options`: what the template is told beside the messages (`template_options.py`)."""
        self.options = options
        self._engine = engine
        self._facts = facts
        self._map = token_map
        self._signs = Signs(MarkerGuard(token_map.special_texts))
        self._pieces = PieceCache(token_map, self._signs.separator)
        self._results_read: bool | None = None
        self._late_system: bool | None = None
        self._counts: bool | None = None
        """Whether what follows a turn depends on the number of calls before it."""
        # By identity: what follows a shape of turn is one object for as long as it is kept.
        self._scaffold_of = lru_cache(_KEPT)(self._without_ids)
        self._following: OrderedDict[tuple[TurnShape, Role, int], Following] = OrderedDict()

    def with_options(self, options: Options) -> "ChatTemplate":
        """Give the same template, told of those options that its text names; others would be without effect.

        Where nobody knows that text the engine leaves them out itself.
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
    ) -> "Prompt":
        """Prompt ids of a conversation, ready for the model's next turn.

        Args:
            messages: OpenAI's shape, each `content` a string or absent.
            tools: definitions in OpenAI's shape, only for templates that know tools.
            known: ids of messages by their numbers; they stand where the template shows these messages whole.
            calls_in: reads the calls of a text, as the model would have written it.

        Raises `TemplateRefused` when the template rejects the conversation in every form (`histories.py`).
        """
        refusal: TemplateRefused | None = None
        for history in histories(messages):
            shown = [message for _, message in history]
            places = ((place, number) for place, (number, _) in enumerate(history) if number is not None)
            kept = {place: known[number] for place, number in places if number in known} if known else {}
            try:
                prompt = await self._prompt(shown, tools, kept, calls_in)
            except TemplateRefused as error:
                refusal = refusal or error
                continue
            bos = list(self._facts.bos)
            if prompt.ids[: len(bos)] == bos:
                return replace(prompt, form=history)
            return replace(prompt, ids=bos + prompt.ids, parts=[Part(len(bos)), *prompt.parts], form=history)
        raise refusal or self._no_place("messages")

    async def _prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        known: Mapping[int, Known],
        calls_in: CallsIn,
    ) -> "Prompt":
        read = any(map(is_json_result, messages)) and await self.reads_results()
        foreign = Foreign(self._signs)
        text = await self._render(foreign.messages(messages, marked=True, results_read=read), foreign.tools(tools))
        text = restored(text, foreign)
        slots = shown_once(text, foreign)
        if slots is not None:
            turns = regions(text, slots, foreign, messages, known, calls_in)
            ids, parts = rendered_ids(text, self._with_contents(slots, turns, foreign, known), self._pieces)
            return Prompt(ids, not read, parts)
        if foreign.results and foreign.results.isdisjoint(s.number for s in find_slots(text, foreign.mark)):
            raise self._no_place("results of tools")
        # The template reads or rewrites a content: it gets the contents themselves, guarded like all else.
        foreign = Foreign(self._signs)
        text = await self._render(foreign.messages(messages, marked=False), foreign.tools(tools))
        ids, parts = rendered_ids(restored(text, foreign), (), self._pieces)
        return Prompt(ids, by_shape=False, parts=parts)

    def _with_contents(
        self, slots: Sequence[Slot], turns: Sequence[Region], foreign: Foreign, known: Mapping[int, Known]
    ) -> Iterator[Region]:
        """All regions of a rendering in order: the turns, and the contents outside them.

        One by one, since the ids of all contents together are as many as those of the prompt.
        """
        waiting, end = deque(turns), 0
        for slot in slots:
            while waiting and waiting[0].start <= slot.start:
                turn = waiting.popleft()
                end = turn.end
                yield turn
            if slot.start >= end:
                number = foreign.owners[slot.number]
                result = known[number].ids if number in known and slot.number in foreign.results else None
                yield content_region(slot, foreign, self._map, result)
        yield from waiting

    async def reads_results(self) -> bool:
        """Whether the template shows a result that is JSON in another form (Gemma 4's first one); asked once."""
        if self._results_read is None:
            said = '{"keyed": ["saidhere"]}'
            messages, _ = next(layouts(TurnShape(("tool",)), "tool", [said], Foreign(self._signs)))
            try:
                text = await self._engine.apply_template(messages)
            except EngineRefused:
                text = said
            # One that has no place for results drops it: it reads none.
            self._results_read = said not in text.replace('\\"', '"') and "saidhere" in text
        return self._results_read

    async def shows_late_system(self) -> bool:
        """Whether system messages that are not the first are shown, and where they stand; asked once."""
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

    async def scaffold(self, shape: TurnShape, end: TurnEnd, role: Role, count: int = 1) -> Scaffold:
        """Ids around `count` contents of `role` that follow a turn of the model.

        `shape` and `end`: of that turn. Asked of the engine once for each shape. Raises `TemplateRefused` when the
        template shows such turns in no form.
        """
        found = await self._known(shape, role, count)
        start = found.end_of_turn(end)
        if start is None:
            # The model wrote its calls in a way that is not the template's: what follows is what follows words.
            found, start = await self._known(replace(shape, calls=()), role, count), 0
        if found.shows_ids(end.call_ids):
            return found.scaffold(start, end.call_ids, self._map)
        return self._scaffold_of(found, start)

    def _without_ids(self, found: Following, start: int) -> Scaffold:
        return found.scaffold(start, (), self._map)

    async def scaffold_with(self, shape: TurnShape, end: TurnEnd, contents: Sequence[str]) -> Scaffold:
        """Ids of results and all around them as one piece, for a template that reads results (`reads_results`)."""
        foreign = Foreign(self._signs)
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
        foreign = Foreign(self._signs)
        return await self._first(shape, role, [foreign.content("-") for _ in range(count)], foreign)

    async def _first(self, shape: TurnShape, role: Role, contents: Sequence[str], foreign: Foreign) -> Following:
        """What follows in the first layout that the template takes."""
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
        raise refusal or self._no_place(f"turns of the role {role!r}")

    def _no_place(self, what: str) -> TemplateRefused:
        return TemplateRefused(f"the chat template of {self._facts.model!r} does not show {what} once each, in order")

    async def _render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        try:
            if not self.options:
                return await self._engine.apply_template(messages, tools)
            return await self._engine.apply_template(messages, tools, self.options)
        except EngineRefused as error:
            raise TemplateRefused(f"the chat template of {self._facts.model!r} refuses: {error.message}") from error
