"""What models leave out or write in another language's way, where one reading is left: a call, however it is cut.

Where none is left, all that the model wrote is content.
"""

import json
from typing import Any

import pytest

from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import AssistantMessage, join_events, parser_for
from gateway.toolcalls.schema.spec import read_tools
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import PLAIN

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "look": {"city": TEXT, "days": NUMBER},
    "write": {"path": TEXT, "content": TEXT, "lines": {"type": "array", "items": TEXT}},
    "now": {},
}
TOOLS = read_tools(
    {"name": name, "parameters": {"type": "object", "properties": keys}} for name, keys in SCHEMAS.items()
)


def read(name: str, text: str, *, cut: int | None = None, whole: bool = True) -> AssistantMessage:
    parser = parser_for(format_named(name), PLAIN, TOOLS)
    ids = PLAIN.spell(text)
    pieces = [ids] if cut is None else [ids[:cut], ids[cut:]]
    return join_events([event for piece in pieces for event in parser.feed(piece)] + parser.close(whole=whole))


def gemma(arguments: str, tool: str = "look") -> str:
    return f"<|tool_call>call:{tool}{{{arguments}}}<tool_call|>"


def glm(*values: str, tool: str = "look") -> str:
    joined = "".join(values)
    return f"<tool_call>{tool}\n{joined}</tool_call>"


def pair(key: str, value: str, end: str = "</arg_value>\n") -> str:
    return f"<arg_key>{key}</arg_key>\n<arg_value>{value}{end}"


def invoke(value: str) -> str:
    return f'<invoke name="look">\n<parameter name="city">{value}</parameter>\n</invoke>'


def city(value: str) -> list[tuple[str, dict[str, Any]]]:
    return [("look", {"city": value})]


OSLO = city("Oslo")
BOTH: list[tuple[str, dict[str, Any]]] = [("look", {"city": "Oslo", "days": 3})]
NOW: tuple[str, dict[str, Any]] = ("now", {})
STYLE = "\n# Style\n\nUse tabs, never blanks,\nand so on."
PARIS: list[tuple[str, dict[str, Any]]] = [("look", {"city": "Paris, France", "days": 3})]
READ: list[tuple[str, str, list[tuple[str, dict[str, Any]]]]] = [
    # Texts without quotes, with commas (ollama 15315).
    ("gemma4", gemma("city:Paris, France,days:3"), PARIS),
    ("gemma4", gemma("days:3,city:Paris, France"), PARIS),
    ("gemma4", gemma("city:Paris,France"), city("Paris,France")),
    ("gemma4", gemma("city:Paris, France,"), city("Paris, France")),
    ("gemma4", gemma("city:Paris, France , days=3"), PARIS),
    ("gemma4", gemma("city:3, rue X, Paris"), city("3, rue X, Paris")),
    ("gemma4", gemma("city:if x: y, z: 3"), city("if x: y, z: 3")),
    ("gemma4", gemma(f"city:{STYLE}"), city(STYLE.lstrip())),
    ("gemma4", gemma("path:a,content:Hello, you!", "write"), [("write", {"path": "a", "content": "Hello, you!"})]),
    ("gemma4", gemma("city:Zürich, 東京"), city("Zürich, 東京")),
    ("gemma4", gemma("city:Oslo,days:3"), BOTH),
    ("gemma4", gemma("lines:[a, b]", "write"), [("write", {"lines": ["a", "b"]})]),
    # Python's prefixes.
    ("pythonic", r"[look(city=r'C:\new')]", city(r"C:\new")),
    ("pythonic", r"[look(city=r'a\'b')]", city(r"a\'b")),
    ("pythonic", '[look(city=R"""\\d+\n"x" """)]', city('\\d+\n"x" ')),
    ("pythonic", "[look(city=f'Oslo', days=3)]", BOTH),
    ("pythonic", "[look(city=u'Oslo')]", OSLO),
    ("pythonic", "[look(city=b'Oslo')]", OSLO),
    ("pythonic", r"[look(city=rb'\n')]", city(r"\n")),
    ("pythonic", r"[look(r'Oslo', 3)]", BOTH),
    ("pythonic", r"[write(path='a', lines=[r'\a', f'b'])]", [("write", {"path": "a", "lines": [r"\a", "b"]})]),
    ("pythonic", "[look(city=rf'Oslo')]", OSLO),
    # Strings that Python joins.
    ("pythonic", "[look(city='Os' 'lo')]", OSLO),
    ("pythonic", '[look(city="Os"\n          "lo", days=3)]', BOTH),
    ("pythonic", "[look(city='O' 's' 'l' 'o')]", OSLO),
    ("pythonic", "[look(city='Os' \"lo\")]", OSLO),
    ("pythonic", "[look(city=r'Os' 'lo')]", OSLO),
    ("pythonic", "[look(city='Os' r'lo')]", OSLO),
    ("pythonic", "[look(city='a\\n'\n 'b\\n')]", city("a\nb\n")),
    ("pythonic", "[look(city='''Os''' 'lo')]", OSLO),
    ("pythonic", "[write(lines=['a' 'b', 'c'])]", [("write", {"lines": ["ab", "c"]})]),
    ("pythonic", "[look(city='Os'  'lo'), now()]", [*OSLO, NOW]),
    # Members without a comma between them.
    ("gemma4", gemma('city:<|"|>Oslo<|"|> days:3'), BOTH),
    (
        "gemma4",
        gemma('path:<|"|>a<|"|> lines:[] content:<|"|>b<|"|>', "write"),
        [("write", {"path": "a", "lines": [], "content": "b"})],
    ),
    # Values without their closing tags.
    ("glm45", glm(pair("city", "Oslo", "\n")), OSLO),
    ("glm45", glm(pair("city", "Oslo", "")), OSLO),
    ("glm45", glm(pair("city", "Oslo", "\n"), pair("days", "3")), BOTH),
    ("glm45", glm(pair("city", "Oslo", ""), pair("days", "3")), BOTH),
    ("glm45", glm(pair("city", "Oslo"), pair("days", "3", "")), BOTH),
    ("glm45", glm(pair("days", "3", "\n"), pair("city", "Oslo", "\n")), BOTH),
    ("glm45", glm(pair("city", "Oslo", "\n")) + "\n" + glm(tool="now"), [*OSLO, NOW]),
    ("glm47", "<tool_call>look<arg_key>city</arg_key><arg_value>Oslo</tool_call>", OSLO),
    ("glm45", glm(pair("city", "a </tool_call> b")), city("a </tool_call> b")),
    ("glm45", glm(pair("city", "a <arg_key>x</arg_key> b")), city("a <arg_key>x</arg_key> b")),
    # Calls without the opening marker of their block.
    ("minimax_m2", invoke("Oslo"), OSLO),
    ("minimax_m2", f"{invoke('Oslo')}\n</minimax:tool_call>", OSLO),
    ("minimax_m2", f"{invoke('Oslo')}\n{invoke('Rome')}", [*OSLO, *city("Rome")]),
    ("minimax_m2", '<invoke name="now">\n</invoke>', [NOW]),
    ("minimax_m2", "<invoke name='look'><parameter name='city'>Oslo</parameter></invoke>", OSLO),
    ("minimax_m2", f"<think>Hm.</think>\n{invoke('Oslo')}", OSLO),
    ("minimax_m2", invoke("a\n</invoke> b"), city("a\n</invoke> b")),
    ("minimax_m2", invoke("<b>Oslo</b>"), city("<b>Oslo</b>")),
    ("dots", invoke("Oslo"), OSLO),
    ("dots", f"{invoke('Oslo')}\n</dots_function_call>", OSLO),
    # Calls without arguments.
    ("mistral", "[TOOL_CALLS]now[ARGS]", [NOW]),
    ("mistral", "[TOOL_CALLS]now[ARGS]\n", [NOW]),
    ("mistral", "[TOOL_CALLS]now[ARGS]{}", [NOW]),
    ("mistral", "[TOOL_CALLS]now[ARGS]null", [NOW]),
    ("mistral", "[TOOL_CALLS]look[ARGS]", [("look", {})]),
    ("mistral", '[TOOL_CALLS]now[ARGS][TOOL_CALLS]look[ARGS]{"city": "Oslo"}', [NOW, *OSLO]),
    ("mistral", '[TOOL_CALLS]look[ARGS]{"city": "Oslo"}[TOOL_CALLS]now[ARGS]', [*OSLO, NOW]),
    ("mistral", "[TOOL_CALLS]now[ARGS] [TOOL_CALLS]now[ARGS]", [NOW, NOW]),
    ("mistral_small", "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]", [NOW]),
    ("mistral_nemo", "[TOOL_CALLS]now[ARGS]", [NOW]),
]


@each_of(("name", "text", "calls"), READ)
def test_slip_with_one_reading_is_a_call_however_it_is_cut(
    name: str, text: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    for cut in (None, *range(1, len(PLAIN.spell(text)))):
        message = read(name, text, cut=cut)
        assert [(call.name, json.loads(call.arguments)) for call in message.tool_calls] == calls, cut
        assert not message.content, cut
        assert {problem.kind for problem in message.diagnostics} <= {"repaired"}


@pytest.mark.parametrize(
    "arguments",
    [
        *('city:<|"|>Oslo<|"|> days:3', 'city:<|"|>Oslo<|"|><|"|>,days:3', 'city:<|"|>Oslo,days:<|"|>3<|"|>'),
        *("city:Paris, France", 'city:Oslo<|"|>', 'city:[<|"|>Oslo<|"|>'),
    ],
)
def test_client_is_told_that_a_mark_is_missing(arguments: str) -> None:
    (problem,) = read("gemma4", gemma(arguments)).diagnostics
    assert (problem.kind, problem.message) == (
        "repaired",
        "the call of 'look' was repaired: a mark is missing in its arguments",
    )


@each_of(
    ("name", "text"),
    [
        ("pythonic", "[look(city=f'{place}')]"),
        ("pythonic", "[look(city=f'Os{x}lo')]"),
        ("pythonic", "[look(city='Os' f'{x}')]"),
        ("pythonic", "[look(city=rx'Oslo')]"),
        ("pythonic", "[look(city=Oslo)]"),
        ("mistral", "[TOOL_CALLS]now[ARGS] and so on"),
        ("gemma4", gemma("city:Paris, [France")),
        ("minimax_m2", 'Write <invoke name="look"> before each call.'),
        ("minimax_m2", "Use <invoke name= and </invoke>."),
    ],
)
def test_what_has_no_reading_is_content_from_its_first_character(name: str, text: str) -> None:
    for cut in (None, *range(1, len(PLAIN.spell(text)))):
        assert read(name, text, cut=cut).content == text, cut


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mistral", "[TOOL_CALLS]now[ARGS]"),
        ("pythonic", "[look(city='Os' "),
        ("gemma4", "<|tool_call>call:look{city:a, b"),
    ],
)
def test_call_that_a_limit_cuts_is_still_cut(name: str, text: str) -> None:
    assert [problem.kind for problem in read(name, text, whole=False).diagnostics] == ["truncated"]
