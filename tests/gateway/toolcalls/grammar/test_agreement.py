"""Three readers of one grammar agree: our parser, our own reader of GBNF, and llguidance.

llguidance is the outside opinion: it takes what the format's models render and what the grammar writes, and a text that
one character has been changed of exactly where our reader takes it too. Its lexer is greedy and never goes back; hence
the grammar is given to it with every character as a lexeme of its own.
"""

import random
import re
from collections.abc import Callable

import llguidance
import pytest

from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.parser import parse
from tests.cases import IN_FULL, each_of
from tests.gateway.toolcalls.fakes import TOOLS
from tests.gateway.toolcalls.families import Written
from tests.gateway.toolcalls.gbnf_oracle import Gbnf, Item
from tests.gateway.toolcalls.test_laws import ALL
from tests.gateway.toolcalls.tool_sets import MAP, SHELF, TOOL_SETS

BYTES = llguidance.LLTokenizer("byte")
NOTHING = '""'
SEEDS = 8 if IN_FULL else 3
"""Texts of each grammar."""
SETS = {**TOOL_SETS, "map": MAP, "shelf": SHELF}


def taker(grammar: str) -> Callable[[str], bool]:
    """Say of a text whether llguidance takes it, whole."""
    rules = {"start": Item("rule", "root"), **{_name(name): item for name, item in Gbnf(grammar).rules.items()}}
    lark = "\n".join(f"{name}: {_lark(item)}" for name, item in rules.items())
    matcher = llguidance.LLMatcher(BYTES, lark)
    assert not matcher.is_error(), matcher.get_error()

    def takes(text: str) -> bool:
        one, data = matcher.deep_copy(), list(text.encode())
        return one.try_consume_tokens(data) == len(data) and one.is_accepting()

    return takes


def _name(rule: str) -> str:
    return f"rule_{rule.replace('-', '_')}"


def _lark(item: Item) -> str:
    match item.kind:
        case "rule":
            once = _name(str(item.value))
        case "text":
            once = f"({' '.join(_class(False, [(char, char)]) for char in str(item.value))})"
        case "class":
            once = _class(*item.value)  # type: ignore[misc]
        case _:
            rows: list[list[Item]] = item.value  # type: ignore[assignment]
            once = f"({' | '.join(' '.join(map(_lark, row)) or NOTHING for row in rows)})"
    if (item.least, item.most) == (1, 1):
        return once
    if item.most is None and item.least < 2:
        return once + "*+"[item.least]
    return f"{once}{{{item.least},{'' if item.most is None else item.most}}}"


def _class(negated: bool, ranges: list[tuple[str, str]]) -> str:
    spelled = "".join(f"\\x{{{ord(low):x}}}-\\x{{{ord(high):x}}}" for low, high in ranges)
    return f"/[{'^' if negated else ''}{spelled}]/"


@pytest.mark.in_full
@each_of("tool_set", SETS)
@each_of("name", format_names())
def test_a_text_is_in_the_grammar_for_one_reader_as_for_the_other(name: str, tool_set: str) -> None:
    grammar = call_grammar(format_named(name), SETS[tool_set], choice="required", parallel=tool_set == "flat")
    ours, theirs = Gbnf(grammar), taker(grammar)
    refused = 0
    for seed in range(SEEDS):
        chance = random.Random(seed)
        text = ours.sample(chance)
        assert theirs(text), text
        at = chance.randrange(len(text))
        for changed in (
            text[:at] + text[at + 1 :],
            f"{text[:at]}{chance.choice('x{<]')}{text[at:]}",
            text[:at],
            f"{text}.",
            f"Well. {text}",
        ):
            assert theirs(changed) == ours.takes(changed), changed
            refused += not theirs(changed)
    assert refused >= SEEDS * 3


RENDERED_OTHERWISE: dict[str, Callable[[str], str]] = {
    # The prompt ends with the mark that begins a turn, or prose goes before.
    "functionary_32": lambda text: text.removeprefix(">>>"),
    # The template names the tool before the channel. The token that ends the turn is the engine's to write.
    "harmony": lambda text: re.sub(
        r"<\|channel\|>commentary( to=\S+) <\|constrain\|>json",
        r"\1<|channel|>commentary json",
        text.removesuffix("<|call|>").replace("<|call|>", "<|end|>"),
    ),
    "muse_glimmer": lambda text: text.removeprefix("<|start|>assistant").removesuffix("<|eom|>"),
    "inkling": lambda text: text.removeprefix("<|message_model|>"),
    # Both are read; the grammar writes the one.
    "json": lambda text: f"[{', '.join(text.splitlines())}]",
    **dict.fromkeys(("lfm2", "olmo_3", "pythonic"), lambda text: text.replace('"', '\\"').replace("'", '"')),
}
"""Where a model's own spelling is another than the grammar's."""

ONE = [Written("get_weather", '{"city": "<é\\"東>", "days": 3}', "7")]
TWO = [Written("get_time", "{}", "8"), Written("get_weather", '{"city": "Paris [13e]"}', "9")]
LONG_IDS = ("mistral_nemo", "mistral_small")


@each_of("calls", [ONE, TWO])
@each_of("name", ALL)
def test_what_a_family_s_models_render_is_in_its_grammar(name: str, calls: list[Written]) -> None:
    if name in LONG_IDS:
        calls = [Written(call.name, call.given, f"abcdefgh{call.id}") for call in calls]
    text = RENDERED_OTHERWISE.get(name, str)(ALL[name].write(calls).lstrip("\n"))
    grammar = call_grammar(format_named(name), TOOLS, choice="required", parallel=True)
    takes = taker(grammar)
    assert takes(text), text
    assert Gbnf(grammar).takes(text)
    assert [call.name for call in parse(name, text, TOOLS).tool_calls] == [call.name for call in calls]
    assert not takes(text.replace("get_weather", "get_whether"))
    alone = call_grammar(format_named(name), TOOLS, choice="required")
    assert taker(alone)(text) == (len(calls) == 1)
