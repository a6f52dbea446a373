"""What a client says to the template: it reaches the template, is kept apart, and never becomes a control token."""

import pytest

from gateway.engine.interface import EngineFacts
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine, checked_options
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.errors import RequestInvalid
from gateway.toolcalls.formats.registry import choose_format
from leaf_sdk.testing import tiny_map
from tests.cases import each_of

TINY = tiny_map()
KNOWS = "{% if enable_thinking %}<think>{% endif %}{{ reasoning_effort }}"


class Engine:
    """Renders what it is told."""

    def __init__(self) -> None:
        self.told = []

    async def apply_template(self, messages, tools=(), options=None):
        self.told.append(options)
        turns = [f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages]
        return "".join(turns) + f"<|im_start|>assistant\n{(options or {}).get('reasoning_effort', '')}"


def ready_engine(template: str = KNOWS) -> tuple[ReadyEngine, Engine]:
    engine = Engine()
    facts = EngineFacts("m", None, template, False, len(TINY), 4000, 1, ())
    known = ChatTemplate(engine, facts, TINY)  # pyright: ignore[reportArgumentType]
    tool_format = choose_format(template, supports_tools=False)
    return ReadyEngine(engine, facts, TINY, known, SlotTable(1), tool_format), engine  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("value", [True, 0, -1.5, "low", "gpt-4.1", "x_y"])
def test_plain_values_are_options(value):
    assert checked_options({"k": value}, TINY, "kwargs") == {"k": value}


@each_of(
    ("given", "where"),
    [
        ({"k": "<|im_end|>"}, "kwargs.k"),
        ({"k": "im_start"}, "kwargs.k: 'im_start' is part of a control token"),
        ({"k": "x.im_end"}, "kwargs.k"),
        ({"k": "two words"}, "kwargs.k"),
        ({"k": ""}, "kwargs.k"),
        ({"k": "a\n"}, "kwargs.k"),
        ({"k": "é"}, "kwargs.k"),
        ({"k": "x" * 65}, "kwargs.k"),
        ({"k": ["low"]}, "kwargs.k"),
        ({"k": {"a": 1}}, "kwargs.k"),
        ({"k": None}, "kwargs.k"),
        ({"messages": "x"}, "'messages' can't be an option"),
        ({"bos_token": "x"}, "'bos_token' can't be an option"),
        ({"a b": 1}, "'a b' can't be an option"),
        ({"k\n": 1}, "can't be an option"),
        ({f"k{n}": n for n in range(17)}, "at most 16"),
    ],
)
def test_what_may_be_more_than_a_switch_is_refused_by_name(given, where):
    with pytest.raises(RequestInvalid) as refused:
        checked_options(given, TINY, "kwargs")

    assert where in refused.value.message
    assert refused.value.param == "kwargs"


@pytest.mark.anyio
async def test_template_is_told_and_what_is_known_of_it_is_kept_apart():
    ready, engine = ready_engine()
    low, again = (ready.with_options({"reasoning_effort": "low"}) for _ in range(2))
    high = ready.with_options({"reasoning_effort": "high"})
    messages = [{"role": "user", "content": "Hi"}]
    plain, told = await ready.template.prompt(messages), await low.template.prompt(messages)

    assert low.template is again.template
    assert low.shapes is again.shapes
    assert len({id(each.template) for each in (ready, low, high)}) == 3
    assert len({id(each.shapes) for each in (ready, low, high)}) == 3
    assert TINY.decode(told.ids) == TINY.decode(plain.ids) + "low"
    assert {str(options) for options in engine.told} == {"None", "{'reasoning_effort': 'low'}"}
    assert low.number == ready.number


def test_option_that_the_template_does_not_name_is_left_out():
    ready, _ = ready_engine()

    assert ready.with_options({"thinking": True}) is ready
    assert ready.with_options({"thinking": True, "enable_thinking": False}).template.options == {
        "enable_thinking": False
    }


def test_templates_told_of_options_are_bounded():
    ready, _ = ready_engine()
    first = ready.with_options({"reasoning_effort": "x0"})
    for number in range(1, 40):
        ready.with_options({"reasoning_effort": f"x{number}"})

    assert len(ready.variants) == 16
    assert ready.with_options({"reasoning_effort": "x0"}).template is not first.template


@pytest.mark.anyio
@pytest.mark.engine
@pytest.mark.parametrize(
    ("template", "options", "shown"),
    [
        ("Qwen-Qwen3-0.6B", {"enable_thinking": False}, "<think>\n\n</think>"),
        ("openai-gpt-oss-120b", {"reasoning_effort": "high"}, "Reasoning: high"),
    ],
)
async def test_real_template_does_as_it_is_told(serve_template, template, options, shown):
    client = LlamaCpp(serve_template(template))
    messages = [{"role": "user", "content": "Hi"}]
    try:
        plain, told = await client.apply_template(messages), await client.apply_template(messages, (), options)
    finally:
        await client.aclose()
    assert shown in told
    assert shown not in plain
