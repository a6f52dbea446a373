"""Lists of Python calls that an answer only shows are content; those that a model means stay calls."""

import itertools
import json
import random

import pytest

from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import MAX_REGION, join_events, parse, parser_for, stream
from gateway.toolcalls.stream.output_events import Content
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import PLAIN, TOOLS

FORMATS = ["pythonic", "lfm2"]
FITTING = [
    "[get_weather(city='Seoul')]",
    '[get_weather(city="Seoul", days=2)]',
    "[get_time()]",
    "[get_time(tz='KST'), get_weather(city='Seoul')]",
    "[get_weather('Seoul')]",
]
UNFIT = [
    "[get_weather(town='Seoul')]",
    "[get_weather(days=2)]",
    "[no_such(city='Seoul')]",
    "[get_weather(city=3)]",
    "[get_weather(city='Seoul', days=1e999)]",
    "[get_time(), no_such()]",
    "[get_time() for _ in range(3)]",
    "[get_weather(city=c) for c in cities]",
]
IN_CODE = [
    "`{}`",
    "```python\n{}\n```",
    "```\n{}\n```",
    "~~~python\n{}\n~~~",
    "| {} |",
    "<pre>{}</pre>",
    "```python\nresults = {}\n```",
    "```python\nresults = await gather(*{})\nprint(results)\n```",
    '```python\ndef f():\n    """Reads {}."""\n```',
    "```python\n# {}\nrun()\n```",
    "x = {}",
    "return {}",
    "({})",
    "rows{}",
]
PLACES = [*IN_CODE, "{}", "1. {}", "> {}", "    {}", "**{}**", "“{}”"]
BEFORE = ["The model answers with ", "For example:\n\n", "So erwartet es der Server: ", "물론이죠:\n"]
BEHIND = ["\n\nThis asks for the weather.", " or the like.", "\n```\nAnd so on.", ".", ", which asks."]
SHOWN = [
    *(
        f"{before}{place.format(shown)}{behind}"
        for shown, place, before, behind in itertools.product([*FITTING, *UNFIT], PLACES, BEFORE[:2], BEHIND)
    ),
    *(
        f"{before}{place.format(shown)}"
        for shown, place, before in itertools.product([*FITTING, *UNFIT], IN_CODE, BEFORE)
    ),
    *(f"{before}{place.format(shown)}" for shown, place, before in itertools.product(UNFIT, PLACES, BEFORE)),
]


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("name", FORMATS)
def test_a_list_amid_prose_or_in_code_is_content_to_its_last_character(name: str) -> None:
    assert len(SHOWN) > 3000
    for text in SHOWN:
        message = parse(name, text, TOOLS)
        assert (message.tool_calls, message.content) == ((), text)
        assert {problem.kind for problem in message.diagnostics} <= {"lookalike"}


@pytest.mark.parametrize("name", FORMATS)
def test_a_list_that_is_shown_is_the_same_however_it_is_cut(name: str) -> None:
    for text in random.Random(name).sample(SHOWN, 200):
        assert stream(name, cut(text, random.Random(text).randint(1, 9)), TOOLS) == parse(name, text, TOOLS)


LEADS = [
    "",
    "Let me look. ",
    "Let me look.\n\n",
    "물론이죠:\n",
    "I'll do two things:\n- a\n- b\n\n",
    "See [docs](x) [1]. ",
    "조회합니다:",
]


@each_of("name", FORMATS)
@each_of("before", LEADS)
@each_of("lists", [*([each] for each in FITTING), [FITTING[0], FITTING[2]]])
def test_a_list_that_ends_an_answer_is_calls_however_it_is_cut(name: str, before: str, lists: list[str]) -> None:
    for behind in ("", "\n"):
        text = before + "\n".join(lists) + behind
        message = parse(name, text, TOOLS)
        assert len(message.tool_calls) == sum(each.count("get_") for each in lists)
        assert (message.content or "").strip() == before.strip()
        assert message.diagnostics == ()
        told = [(call.name, call.arguments) for call in message.tool_calls]
        for size in range(1, 12):
            streamed = stream(name, cut(text, size), TOOLS)
            assert [(call.name, call.arguments) for call in streamed.tool_calls] == told
            assert streamed.content == message.content


@pytest.mark.parametrize("name", FORMATS)
def test_the_arguments_of_a_last_list_are_json(name: str) -> None:
    message = parse(name, "So: [get_weather(city='Se\\'oul', days=2), get_time()]", TOOLS)
    assert [json.loads(call.arguments) for call in message.tool_calls] == [{"city": "Se'oul", "days": 2}, {}]


@pytest.mark.parametrize("name", FORMATS)
def test_a_list_of_objects_behind_text_is_read_as_in_every_format(name: str) -> None:
    for before in ("", "So: "):
        message = parse(name, f'{before}[{{"name": "get_time", "arguments": {{}}}}]', TOOLS)
        assert [call.name for call in message.tool_calls] == ["get_time"]
        assert (message.content or "") == before


@pytest.mark.parametrize("name", FORMATS)
def test_without_tools_no_list_behind_text_is_a_call(name: str) -> None:
    assert parse(name, "So: [get_time()]", ()).content == "So: [get_time()]"


@pytest.mark.parametrize("name", FORMATS)
def test_the_diagnostic_says_why_a_list_is_content(name: str) -> None:
    (problem,) = parse(name, "Write [get_time()] for it", TOOLS).diagnostics
    assert problem.message == "the answer shows a call of 'get_time': text follows it, or its arguments don't fit"


@each_of("name", FORMATS)
@each_of(
    ("text", "held"),
    [
        ("[", "["),
        ("[docs", "[docs"),
        ("[docs]", ""),
        ("[no_such(a=1", ""),
        ("[get_weather(city='Se", "[get_weather(city='Se"),
        ("[get_time()]\n", "[get_time()]\n"),
        ("[get_time()] a", ""),
    ],
)
def test_text_is_held_only_while_it_can_be_a_last_list(name: str, text: str, held: str) -> None:
    parser = parser_for(format_named(name), PLAIN, TOOLS)
    events = parser.feed(PLAIN.spell(f"So: {text}"))
    told = "".join(event.text for event in events if isinstance(event, Content))
    assert told == f"So: {text}".removesuffix(held)


@each_of("name", FORMATS)
@each_of("part", ["[get_time() ", "[get_weather(city='", "[get_time(), ", "[[", "[get_time()] a "])
def test_the_cost_of_lists_that_are_no_calls_grows_with_the_text_alone(name: str, part: str) -> None:
    def scanned(times: int) -> int:
        parser = parser_for(format_named(name), PLAIN, TOOLS)
        ids = PLAIN.spell("So: " + part * times)
        for at in range(0, len(ids), 7):
            parser.feed(ids[at : at + 7])
        parser.close()
        return parser.scanned

    assert scanned(400) < 2.2 * scanned(200)


@pytest.mark.parametrize("name", FORMATS)
def test_flaws_of_a_last_list_are_repaired_and_named(name: str) -> None:
    parser = parser_for(format_named(name), PLAIN, TOOLS)
    message = join_events(parser.feed(PLAIN.spell("So: [get_time(), get_time(tz='KST'")) + parser.close(whole=True))
    assert [json.loads(call.arguments) for call in message.tool_calls] == [{}, {"tz": "KST"}]
    assert [(problem.kind, problem.index) for problem in message.diagnostics] == [("repaired", 1)]
    assert len(parse(name, "So: [get_time(),\n]", TOOLS).tool_calls) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_a_last_list_beyond_the_bound_is_content(name: str) -> None:
    text = f"So: [get_time(tz='{'x' * MAX_REGION}')]"
    message = parse(name, text, TOOLS)
    assert (message.tool_calls, len(message.content or "")) == ((), len(text))
