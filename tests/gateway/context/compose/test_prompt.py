"""Which ids a prompt has: those that the engine holds, wherever the template shows them whole, and new ones behind."""

import json
from typing import Any

import pytest

from gateway.context.compose.conversation import Asked, Conversation
from gateway.context.compose.prompt import Composer
from gateway.context.compose.recall import Recall
from gateway.context.history.template_messages import tool_definitions
from gateway.context.memory import NO_TOOLS, RETOLD, Call
from gateway.context.memory.defined_tools import BEGINNING, ToolDigests
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.observe.trajectories import Span
from gateway.toolcalls.formats.registry import system_preamble
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed
from tests.cases import each_of
from tests.gateway.context.compose.written_turns import (
    END,
    HERMES,
    TINY,
    Renderer,
    call,
    echo,
    make_ready,
    new_recall,
    result,
    run,
    said,
    text,
    write,
    write_text,
)

pytestmark = pytest.mark.anyio

LOOK = ToolSpec("look", "", {"type": "object"})
ASKED = Asked(HERMES, (LOOK,))
QUESTION = [said("system", "Be kind."), said("user", "hi")]
LISTED = json.dumps(tool_definitions([LOOK]))
TOOLS = f"<|im_start|>system\n{LISTED}<|im_end|>\n"
ASSISTANT = "<|im_start|>assistant\n"


def turn(role: str, words: str) -> str:
    return f"<|im_start|>{role}\n{words}<|im_end|>\n"


ASKED_TEXT = f"{turn('system', 'Be kind.')}{turn('user', 'hi')}"


# A conversation's first prompt.


def composer(ready: ReadyEngine, *tools: ToolSpec) -> Composer:
    defined = NO_TOOLS.having(tools, BEGINNING, ToolDigests())
    return Composer(Asked(HERMES, tools), ready, defined)


async def test_first_prompt_is_what_the_template_writes() -> None:
    context = await composer(make_ready(), LOOK).begin(QUESTION)

    assert text(context.ids) == f"{TOOLS}{ASKED_TEXT}{ASSISTANT}"
    assert text(context.ids[: context.preamble]) == f"{TOOLS}{turn('system', 'Be kind.')}<|im_start|>user\n"
    assert (context.question, context.earlier, context.defines, context.sources) == (len(context.ids), (), True, None)


async def test_prompt_without_tools_defines_none() -> None:
    for ready in (make_ready(), make_ready(preamble=True)):
        context = await composer(ready).begin(QUESTION)
        assert text(context.ids) == f"{ASKED_TEXT}{ASSISTANT}"
        assert not context.defines


async def test_tools_are_taught_where_the_template_does_not_show_them() -> None:
    renderer = Renderer()
    ready = make_ready(renderer, preamble=True)
    preamble = system_preamble(HERMES, [LOOK])

    context = await composer(ready, LOOK).begin(QUESTION)
    system = turn("system", f"Be kind.\n\n{preamble}")
    assert text(context.ids) == f"{system}{turn('user', 'hi')}{ASSISTANT}"
    assert context.defines
    context = await composer(ready, LOOK).begin(QUESTION[1:])
    assert text(context.ids) == f"{turn('system', preamble)}{turn('user', 'hi')}{ASSISTANT}"
    assert not any(tools for _, tools in renderer.asked)


async def test_messages_that_stand_for_one_are_shown_for_it_and_their_calls_are_counted() -> None:
    two = {"role": "assistant", "content": "", "tool_calls": [shown(call(0)), shown(call(1))]}
    told = [two, result(0, "sun"), result(1, "rain"), said("assistant", "Yes.")]
    history = [*QUESTION, {**said("assistant", "Yes."), RETOLD: told}, said("user", "And?")]

    context = await composer(make_ready()).begin(history)
    calls = f"{hermes(call(0))}\n{hermes(call(1))}"
    assert text(context.ids) == (
        f"{ASKED_TEXT}{turn('assistant', calls)}{turn('tool', 'sun')}{turn('tool', 'rain')}"
        f"{turn('assistant', 'Yes.')}{turn('user', 'And?')}{ASSISTANT}"
    )
    assert context.earlier == (2,)
    assert context.question == len(context.ids)


async def test_question_is_not_known_where_the_turn_behind_it_is_not_remembered() -> None:
    history = [*QUESTION, {**said("assistant", ""), "tool_calls": [shown(call(0))]}, result(0, "sun")]

    assert (await composer(make_ready()).begin(history)).question == 0
    assert (await composer(make_ready()).begin([said("system", "x")])).question == 0


def shown(each: CallClosed) -> dict[str, Any]:
    return {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}


def hermes(each: CallClosed) -> str:
    """A call as the template writes it."""
    return f'<tool_call>\n{{"name": "{each.name}", "arguments": {each.arguments}}}\n</tool_call>'


# A conversation that goes on.


class Talk:
    """A conversation with one gateway."""

    def __init__(self, ready: ReadyEngine, asked: Asked = ASKED, recall: Recall | None = None) -> None:
        self.ready, self.asked, self.recall = ready, asked, recall or new_recall()
        self.messages: list[Any] = [*QUESTION]
        self.held: list[int] = []
        self.renderings = 0
        """How many the engine made for the last prompt."""

    async def ask(self, *messages: Any) -> Conversation:
        """The conversation with these messages."""
        self.messages += messages
        renderer: Any = self.ready.engine
        renderer.asked.clear()
        conversation = await self.recall.begin(self.asked, self.ready, self.messages)
        self.renderings = len(renderer.asked)
        return conversation

    def end(self, conversation: Conversation) -> None:
        """Keep the answer; the client sends it back."""
        self.recall.keep(conversation, "stop", None)
        self.messages.append(echo(conversation))
        self.held = [*conversation.ids]

    def behind(self, conversation: Conversation) -> str:
        """What follows the ids that are held."""
        assert conversation.ids[: len(self.held)] == self.held
        assert conversation.continuation.kept == len(self.held)
        return text(conversation.ids[len(self.held) :])


TIMES = 4
"""After so many equal turns the shape of a conversation is known."""
READY = {
    "shows tools": {},
    "is taught tools": {"preamble": True},
    "is taught tools and calls": {"preamble": True, "calls_as_text": True},
}


@pytest.mark.parametrize("how", READY)
@pytest.mark.parametrize("system", [True, False])
async def test_each_prompt_begins_with_all_that_is_held(how: str, system: bool) -> None:
    talk = Talk(make_ready(**READY[how]))
    talk.messages = talk.messages[not system :]
    conversation = await talk.ask()
    for number in range(3):
        # A call of the gateway's, and one of the client's.
        write(conversation, "Let me see.", call(2 * number, "dig"), shown=False)
        await run(conversation, "deep")
        write(conversation, "It is sunny.", call(2 * number + 1))
        talk.end(conversation)
        conversation = await talk.ask(result(2 * number + 1, "rain"))
        assert talk.behind(conversation) == f"<|im_end|>\n{turn('tool', 'rain')}{ASSISTANT}"
        write(conversation, "It rains.")
        talk.end(conversation)
        conversation = await talk.ask(said("user", "And?"))
        assert talk.behind(conversation) == f"<|im_end|>\n{turn('user', 'And?')}{ASSISTANT}"
        assert conversation.context.question == len(conversation.ids)
        assert conversation.context.earlier == (1,) * 2 * (number + 1)


async def test_conversation_of_a_known_shape_is_not_rendered_again() -> None:
    talk = Talk(make_ready())
    conversation = await talk.ask()
    renderings: list[int] = []
    for number in range(TIMES):
        write(conversation, "", call(number))
        talk.end(conversation)
        conversation = await talk.ask(result(number, "sun"))
        assert talk.behind(conversation) == f"<|im_end|>\n{turn('tool', 'sun')}{ASSISTANT}"
        renderings.append(talk.renderings)

    assert renderings[0] > 0
    assert renderings[-1] == 0


async def test_results_are_appended_in_the_order_of_their_calls() -> None:
    talk = Talk(make_ready())
    conversation = await talk.ask()
    for number in range(0, 2 * TIMES, 2):
        write(conversation, "", call(number), call(number + 1))
        talk.end(conversation)
        conversation = await talk.ask(result(number + 1, "two"), result(number, "one"))
        assert talk.behind(conversation) == f"<|im_end|>\n{turn('tool', 'one')}{turn('tool', 'two')}{ASSISTANT}"
        assert conversation.context.earlier == (2,) * (number // 2 + 1)
    assert talk.renderings == 0


async def test_result_that_the_gateway_has_beside_the_clients_keeps_its_ids() -> None:
    talk = Talk(make_ready(), recall=watched())
    # As a tool may spell it.
    own = [*TINY.encode("rai"), *TINY.encode("n")]
    assert own != TINY.encode("rain")
    conversation = await talk.ask()
    for number in range(0, 2 * TIMES, 2):
        gateways, clients = call(number, "dig"), call(number + 1)
        write(conversation, "", gateways, clients, shown=False)
        conversation.lived.calls.append(Call(clients.id, clients.name, clients.arguments))
        conversation.lived.add_result(gateways.id, "dig", own, (Span("leaf", len(own), "dig"),))
        talk.end(conversation)
        conversation = await talk.ask(result(number + 1, "sun"))
        assert talk.behind(conversation) == f"<|im_end|>\n{turn('tool', 'rain')}{turn('tool', 'sun')}{ASSISTANT}"
        assert contains(conversation.ids[len(talk.held) :], own)
        assert [source for source, _ in sources_of(conversation)] == [
            *("template", "leaf/dig", "template", "shim/look", "template"),
        ]
    assert talk.renderings == 0


def contains(ids: list[int], part: list[int]) -> bool:
    return any(ids[at : at + len(part)] == part for at in range(len(ids)))


NEW = {
    "a result is missing": ([call(0), call(1)], [result(0, "one")]),
    "a question follows results": ([call(0)], [result(0, "one"), said("user", "And?")]),
    "two questions": ([], [said("user", "And?"), said("user", "Or?")]),
    "a late system message": ([], [said("system", "Be brief.")]),
    "a question instead of a result": ([call(0)], [said("user", "And?")]),
}


@pytest.mark.parametrize("new", NEW)
async def test_what_is_no_simple_turn_is_rendered_and_still_keeps_what_is_held(new: str) -> None:
    calls, messages = NEW[new]
    talk = Talk(make_ready())
    conversation = await talk.ask()
    for _ in range(TIMES):
        write(conversation, "" if calls else "Yes.", *calls)
        talk.end(conversation)
        conversation = await talk.ask(*messages)
        shown = "".join(turn(each["role"], each["content"]) for each in messages)
        assert talk.behind(conversation) == f"<|im_end|>\n{shown}{ASSISTANT}"
        assert talk.renderings > 0


async def answered_once(ready: ReadyEngine, kind: str) -> int:
    """How many renderings a question behind an answer of a kind takes."""
    talk = Talk(ready, Asked(HERMES) if kind == "no tools" else ASKED)
    conversation = await talk.ask()
    write(conversation, "Look." if kind == "words before the call" else "", call(0), shown=kind != "own call")
    if kind == "own call":
        await run(conversation, "sun")
    else:
        talk.end(conversation)
        conversation = await talk.ask(result(0, "" if kind == "empty result" else "sun"))
    ended = None if kind == "cut" else END
    words, thought = " Yes." if kind == "blanks" else "Yes.", "Hm." if kind == "reasoning" else ""
    write(conversation, words, ended_by=ended, reasoning=thought)
    talk.end(conversation)
    await talk.ask(said("user", "And?"))
    return talk.renderings


@pytest.mark.parametrize(
    "kind",
    ["own call", "words before the call", "empty result", "no tools", "cut", "reasoning", "blanks"],
)
async def test_conversation_of_another_shape_is_rendered_once(kind: str) -> None:
    ready = make_ready()
    assert await answered_once(ready, "plain") > 0
    assert await answered_once(ready, "plain") == 0

    assert await answered_once(ready, kind) > 0
    assert await answered_once(ready, "plain") == 0


class ReadsJson(Renderer):
    """Shows a JSON result in words of its own."""

    def turn(self, message: Any) -> str:
        content = message.get("content") or ""
        if message["role"] == "tool" and content.startswith("{"):
            pairs = [f"{key} is {value}" for key, value in json.loads(content).items()]
            return super().turn({**message, "content": ", ".join(pairs)})
        return super().turn(message)


@pytest.mark.parametrize("reads", [True, False])
async def test_json_result_is_shown_as_the_template_reads_it(reads: bool) -> None:
    talk = Talk(make_ready(ReadsJson() if reads else Renderer()))
    conversation = await talk.ask()
    for number in range(TIMES):
        write(conversation, "", call(number))
        talk.end(conversation)
        conversation = await talk.ask(result(number, '{"sky": "blue"}'))
        words = "sky is blue" if reads else '{"sky": "blue"}'
        assert text(conversation.ids).endswith(f"<|im_end|>\n{turn('tool', words)}{ASSISTANT}")
    assert bool(talk.renderings) is reads


async def test_plain_results_are_appended_where_the_template_reads_json_until_one_is_json() -> None:
    talk = Talk(make_ready(ReadsJson()))
    conversation = await talk.ask()
    for number in range(0, 2 * TIMES, 2):
        write(conversation, "", call(number), call(number + 1))
        talk.end(conversation)
        conversation = await talk.ask(result(number, "sun"), result(number + 1, "rain"))
        assert talk.behind(conversation) == f"<|im_end|>\n{turn('tool', 'sun')}{turn('tool', 'rain')}{ASSISTANT}"
    assert talk.renderings == 0

    write(conversation, "", call(90), call(91))
    talk.end(conversation)
    conversation = await talk.ask(result(90, '{"sky": "blue"}'), result(91, "rain"))
    assert text(conversation.ids).endswith(f"{turn('tool', 'sky is blue')}{turn('tool', 'rain')}{ASSISTANT}")


async def test_result_of_the_gateways_own_may_be_json() -> None:
    talk = Talk(make_ready(ReadsJson()))
    conversation = await talk.ask()
    for number in range(0, 2 * TIMES, 2):
        gateways, clients = call(number, "dig"), call(number + 1)
        write(conversation, "", gateways, clients, shown=False)
        conversation.lived.calls.append(Call(clients.id, clients.name, clients.arguments))
        own = "sun" if number < 2 * TIMES - 2 else '{"sky": "blue"}'
        conversation.lived.add_result(gateways.id, "dig", TINY.encode(own))
        talk.end(conversation)
        conversation = await talk.ask(result(number + 1, "rain"))

    assert text(conversation.ids).endswith(f"{turn('tool', 'sky is blue')}{turn('tool', 'rain')}{ASSISTANT}")


class DropsReasoning(Renderer):
    """Shows what the model thought only behind the user's last message."""

    async def apply_template(self, messages: Any, tools: Any = (), options: Any = None) -> str:
        last = max((n for n, each in enumerate(messages) if each["role"] == "user"), default=-1)
        told = [
            {**each, "content": f"<think>{thought}</think>{each.get('content') or ''}"}
            if (thought := each.get("reasoning_content")) and number > last
            else each
            for number, each in enumerate(messages)
        ]
        return await super().apply_template(told, tools)


async def test_reasoning_that_the_template_drops_is_gone_and_what_precedes_it_is_kept() -> None:
    talk = Talk(make_ready(DropsReasoning()))
    conversation = await talk.ask()
    first = len(conversation.ids)
    write(conversation, "", call(0), reasoning="Look there.")
    talk.end(conversation)
    conversation = await talk.ask(result(0, "sun"))
    # The question stands: nothing is dropped yet.
    assert talk.behind(conversation) == f"<|im_end|>\n{turn('tool', 'sun')}{ASSISTANT}"
    assert conversation.context.question == first
    write(conversation, "It is sunny.", reasoning="Good.")
    talk.end(conversation)

    conversation = await talk.ask(said("user", "And?"))
    assert conversation.ids[:first] == talk.held[:first]
    assert conversation.continuation.kept == first
    assert text(conversation.ids[first:]) == (
        f"{hermes(call(0))}<|im_end|>\n{turn('tool', 'sun')}{turn('assistant', 'It is sunny.')}"
        f"{turn('user', 'And?')}{ASSISTANT}"
    )
    assert conversation.context.question == len(conversation.ids)


async def test_ids_of_calls_are_the_models_own_for_the_template() -> None:
    renderer = Renderer()
    talk = Talk(make_ready(renderer))
    conversation = await talk.ask()
    write(conversation, "", call(0), model_ids=("functions.look:0",))
    talk.end(conversation)
    renderer.asked.clear()
    await talk.ask(result(0, "sun"))

    whole = next(messages for messages, _ in renderer.asked if len(messages) == 4)
    assert whole[2]["tool_calls"][0]["id"] != "c0"
    assert "functions" in str(whole[2]["tool_calls"][0]["id"])
    assert "functions" in str(whole[3]["tool_call_id"])


async def test_call_with_numbers_keeps_its_ids() -> None:
    talk = Talk(make_ready())
    conversation = await talk.ask()
    write(conversation, "", call(0, arguments='{"n": 1e2, "m": [1, 2.50]}'))
    talk.end(conversation)

    assert talk.behind(await talk.ask(result(0, "sun"))) == f"<|im_end|>\n{turn('tool', 'sun')}{ASSISTANT}"


async def test_call_with_a_number_that_python_does_not_read_is_shown() -> None:
    talk = Talk(make_ready(context=20000))
    conversation = await talk.ask()
    write(conversation, "", call(0, arguments=f'{{"n": {"9" * 5000}}}'))
    talk.end(conversation)

    shown = text((await talk.ask(result(0, "sun"))).ids)
    assert "9" * 5000 in shown
    assert shown.endswith(f"<|im_end|>\n{turn('tool', 'sun')}{ASSISTANT}")


# Turns that were not written as the template writes them.


@each_of(
    "words",
    [
        '{"name": "look", "arguments": {}}',
        ' \n{"arguments": {}, "name": "look"}',
        '```json\n{"name": "look", "arguments": {}}\n```',
        '[{"name": "look", "arguments": {}}]',
    ],
)
@each_of("how", READY)
async def test_call_without_markers_keeps_its_ids_though_the_template_writes_them(words: str, how: str) -> None:
    talk = Talk(make_ready(**READY[how]))
    conversation = await talk.ask()
    write_text(conversation, words, call(0))
    talk.end(conversation)

    assert talk.behind(await talk.ask(result(0, "sun"))) == f"<|im_end|>\n{turn('tool', 'sun')}{ASSISTANT}"


@pytest.mark.parametrize("closed", ["</tool_call>", ""])
@pytest.mark.parametrize("preamble", [True, False])
async def test_turn_that_a_limit_ended_behind_its_calls_keeps_its_ids(closed: str, preamble: bool) -> None:
    talk = Talk(make_ready(preamble=preamble))
    conversation = await talk.ask()
    write(conversation, "Yes.")
    talk.end(conversation)
    conversation = await talk.ask(said("user", "And?"))
    write_text(conversation, f'<tool_call>{{"arguments":{{}},"name":"look"}}{closed}', call(0), ended_by=None)
    talk.end(conversation)

    assert talk.behind(await talk.ask(result(0, "sun"))) == f"<|im_end|>\n{turn('tool', 'sun')}{ASSISTANT}"


class EndsNoQuestion(Renderer):
    """Ends what the model says with a token, and nothing else."""

    def turn(self, message: Any) -> str:
        written = super().turn(message)
        return written.replace("<|im_end|>", "") if message["role"] == "user" else written


async def test_token_that_ends_turns_of_the_model_is_not_that_of_questions() -> None:
    talk = Talk(make_ready(EndsNoQuestion()))
    conversation = await talk.ask()
    write_text(conversation, '<tool_call>{"arguments":{},"name":"look"}', call(0), ended_by=None)
    talk.end(conversation)

    assert talk.behind(await talk.ask(result(0, "sun"))) == f"<|im_end|>\n{turn('tool', 'sun')}{ASSISTANT}"


async def test_template_that_refuses_questions_behind_an_answer_ends_turns_with_no_token() -> None:
    renderer = Renderer()
    talk = Talk(make_ready(renderer))
    conversation = await talk.ask()
    write(conversation, "Look.", call(0), ended_by=None)
    talk.end(conversation)
    renderer.refuses = lambda messages: messages[-1]["role"] == "user"

    shown = text((await talk.ask(result(0, "sun"))).ids)
    assert shown.endswith(f"<|im_end|>\n{turn('tool', 'sun')}{ASSISTANT}")


BROKEN = '<tool_call>{"name": "lo'
WHOLE = '<tool_call>{"name": "look"}</tool_call>'


@each_of(
    ("words", "content", "reasoning", "shown"),
    [
        (f"Let me see.\n{BROKEN}", "Let me see.", "", f"Let me see.\n{BROKEN}"),
        (f"<think>Hm.</think>Let me see.{BROKEN}", "Let me see.", "Hm.", f"Let me see.{BROKEN}"),
        (f"<think>Hm.</think>Let me see.\n{BROKEN}", "Let me see.\n", "Hm.", f"Let me see.\n{BROKEN}"),
        (f"<think>Hm.</think>\n\n{BROKEN}", "", "Hm.", BROKEN),
        (f"<think>Hm.</think>A.{WHOLE}B.{BROKEN}", "A.B.", "Hm.", f"{WHOLE}B.{BROKEN}"),
        # The model thinks of a marker.
        (f"<think>\n\n\n\n\n<tool_call>\n</think>A.{BROKEN}", "A.", "\n<tool_call>", f"A.{BROKEN}"),
        (f"<think>Other words.</think>A.{BROKEN}", "A.", "Hm.", f"A.{BROKEN}"),
        # Where no call begins, only its content is known.
        ('<think>Hm.</think>A.{"name": "lo', "A.", "Hm.", "A."),
    ],
)
async def test_call_that_broke_off_is_shown_as_the_text_that_it_is(
    words: str, content: str, reasoning: str, shown: str
) -> None:
    talk = Talk(make_ready())
    conversation = await talk.ask()
    write_text(conversation, words, content=content, reasoning=reasoning, broken=True)
    talk.end(conversation)
    conversation = await talk.ask(said("user", "And?"))

    assert text(conversation.ids).endswith(f"{ASSISTANT}{shown}<|im_end|>\n{turn('user', 'And?')}{ASSISTANT}")


# Where the ids came from.


def watched() -> Recall:
    recall = new_recall()
    recall.watch(lambda: True)
    return recall


def sources_of(conversation: Conversation) -> list[tuple[str, str]]:
    """Sources of the ids that the answer before does not have, with tools and servers, and their texts."""
    trail = conversation.context.sources
    assert trail is not None
    ids = conversation.ids[trail.kept :]
    told: list[tuple[str, str]] = []
    for span in trail.spans:
        told.append(("/".join(filter(None, (span.source, span.server, span.tool))), text(ids[: span.count])))
        ids = ids[span.count :]
    assert ids == []
    return told


OWNED = Asked(HERMES, (LOOK,), server_of=lambda name: "up")


@pytest.mark.parametrize("asked", [OWNED, Asked(HERMES, (LOOK,), client_tools=frozenset({"look"}))])
async def test_sources_of_a_first_prompt_are_the_template_its_tools_and_messages(asked: Asked) -> None:
    conversation = await Talk(make_ready(), asked, watched()).ask()

    tools = "tools/up/look" if asked is OWNED else "tools/look"
    assert sources_of(conversation) == [
        ("template", "<|im_start|>system\n["),
        (tools, LISTED[1:-1]),
        ("template", "]<|im_end|>\n<|im_start|>system\n"),
        ("system", "Be kind."),
        ("template", "<|im_end|>\n<|im_start|>user\n"),
        ("user", "hi"),
        ("template", f"<|im_end|>\n{ASSISTANT}"),
    ]


async def test_sources_of_taught_tools_are_the_tools() -> None:
    conversation = await Talk(make_ready(preamble=True), OWNED, watched()).ask()

    before, (first, words), (tool, definition), (last, more), *_ = sources_of(conversation)[1:]
    assert before == ("system", "Be kind.\n\n")
    assert (first, tool, last) == ("tools", "tools/up/look", "tools")
    assert f"{words}{definition}{more}" == system_preamble(HERMES, [LOOK])


async def test_prompt_without_tools_has_no_definitions() -> None:
    conversation = await Talk(make_ready(), Asked(HERMES), watched()).ask()

    assert [source for source, _ in sources_of(conversation)] == ["template", "system", "template", "user", "template"]


async def test_sources_of_new_messages_are_the_same_whether_they_are_appended_or_rendered() -> None:
    talk = Talk(make_ready(), OWNED, watched())
    conversation = await talk.ask()
    for number in range(TIMES):
        write(conversation, "", call(number))
        talk.end(conversation)
        conversation = await talk.ask(result(number, "sun"))
        assert conversation.context.sources is not None
        assert conversation.context.sources.kept == len(talk.held)
        assert sources_of(conversation) == [
            *(("template", "<|im_end|>\n<|im_start|>tool\n"), ("shim/up/look", "sun")),
            ("template", f"<|im_end|>\n{ASSISTANT}"),
        ]
    assert talk.renderings == 0


async def test_conversation_that_nobody_looks_at_has_no_sources() -> None:
    talk = Talk(make_ready(), OWNED)
    conversation = await talk.ask()
    for number in range(TIMES):
        assert conversation.context.sources is None
        write(conversation, "", call(number))
        talk.end(conversation)
        conversation = await talk.ask(result(number, "sun"))
    assert (talk.renderings, conversation.context.sources) == (0, None)


async def test_text_at_a_seam_is_tokenized_with_what_the_template_writes_behind_it() -> None:
    class Joins(Renderer):
        """Writes letters behind what the user says."""

        def turn(self, message: Any) -> str:
            words = f"{message['content']}llo" if message["role"] == "user" else message.get("content")
            return super().turn({**message, "content": words})

    talk = Talk(make_ready(Joins()), Asked(HERMES))
    whole = TINY.encode("hello")
    assert whole != [*TINY.encode("he"), *TINY.encode("llo")]
    conversation = await talk.ask()
    for _ in range(TIMES):
        write(conversation, "Yes.")
        talk.end(conversation)
        conversation = await talk.ask(said("user", "he"))
        assert talk.behind(conversation) == f"<|im_end|>\n{turn('user', 'hello')}{ASSISTANT}"
        assert contains(conversation.ids[len(talk.held) :], whole)
    assert talk.renderings == 0
