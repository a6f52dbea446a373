"""Reasoning ahead of a call that a grammar holds: it may come, it must end where the prompt has opened it."""

import random

import pytest

from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.nodes.channels import Harmony
from gateway.toolcalls.nodes.passages import Thought
from gateway.toolcalls.nodes.readers import walk
from gateway.toolcalls.parser import parse
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import TOOLS
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

THOUGHTS = [
    (name, thought.opener, thought.closer, thought.title)
    for name in format_names()
    for thought in walk(format_named(name).body)
    if isinstance(thought, Thought)
]
SILENT = [
    name for name in format_names() if not any(isinstance(n, Thought | Harmony) for n in walk(format_named(name).body))
]


def grammar(name: str, tail: str | None) -> Gbnf:
    return Gbnf(call_grammar(format_named(name), TOOLS, choice="required", prompt_tail=tail))


@each_of(("name", "opener", "closer", "title"), THOUGHTS)
@each_of("prompt", ["nothing", "opened", "closed"])
def test_what_is_written_is_read_as_reasoning_and_a_call(
    name: str, opener: str, closer: str, title: str, prompt: str
) -> None:
    tail = {"nothing": "assistant\n", "opened": f"{opener}{title}\n", "closed": f"{opener}\n\n{closer}\n\n"}[prompt]
    texts, called = grammar(name, tail), grammar(name, None)
    reasoned = set[bool]()
    for seed in range(12):
        text = texts.sample(random.Random(seed))
        message = parse(name, text, TOOLS, prompt_tail=tail)
        assert message.diagnostics == (), text
        assert len(message.tool_calls) == 1
        assert not (message.content or "").strip()
        reasoned.add(bool(message.reasoning_content) or not called.takes(text))
    assert reasoned == {"nothing": {True, False}, "opened": {True}, "closed": {False}}[prompt]


@each_of(("name", "opener", "closer", "title"), THOUGHTS)
def test_reasoning_comes_once_and_ends_before_the_call(name: str, opener: str, closer: str, title: str) -> None:
    call = grammar(name, None).sample(random.Random(1))
    head = opener + (f"{title}\n" if title else "")
    thought = "I think, with a < and an é.\n\nAnd so on. "
    free = grammar(name, "assistant\n").takes
    assert free(call)
    assert free(f"{head}{thought}{closer}\n\n{call}")
    assert not free(f"{head}{thought}{call}")
    opened = grammar(name, f"assistant\n{opener}").takes
    assert opened(f"{thought}{closer}{call}")
    assert not opened(call)


@each_of("name", SILENT)
def test_a_format_without_reasoning_begins_with_the_call(name: str) -> None:
    arguments = (format_named(name), TOOLS)
    assert call_grammar(*arguments, choice="required", prompt_tail="assistant\n<think>\n") == call_grammar(
        *arguments, choice="required"
    )


HEADER = "<|channel|>analysis<|message|>"
NEXT = "<|end|><|start|>assistant"


@pytest.mark.parametrize(("tail", "head"), [("<|start|>assistant", HEADER), (f"<|start|>assistant{HEADER}", "")])
def test_harmony_reasons_in_a_message_of_its_own(tail: str, head: str) -> None:
    texts = grammar("harmony", tail)
    call = grammar("harmony", None).sample(random.Random(1))
    text = f"{head}Well, well.{NEXT}{call}"
    assert texts.takes(text)
    assert texts.takes(call) == bool(head)
    message = parse("harmony", text, TOOLS, prompt_tail=tail)
    assert (message.reasoning_content, len(message.tool_calls), message.diagnostics) == ("Well, well.", 1, ())


def test_a_message_that_the_prompt_began_in_another_channel_is_no_reasoning() -> None:
    assert grammar("harmony", "<|start|>assistant<|channel|>final<|message|>").takes(
        grammar("harmony", None).sample(random.Random(1))
    )


@each_of(("name", "opener", "closer", "title"), THOUGHTS)
def test_model_whose_template_knows_no_reasoning_is_offered_none(
    name: str, opener: str, closer: str, title: str
) -> None:
    def takes(template: str) -> bool:
        tools = (format_named(name), TOOLS)
        return Gbnf(call_grammar(*tools, choice="required", prompt_tail="assistant\n", template=template)).takes(text)

    call = grammar(name, None).sample(random.Random(1))
    text = opener + (f"{title}\n" if title else "") + f"Well.{closer}\n\n{call}"
    assert takes(f"{opener}{closer}")
    assert not takes("{{ tools }}")
