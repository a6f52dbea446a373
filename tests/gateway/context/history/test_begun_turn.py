"""A text that begins the model's turn: whole reasoning in front of it is reasoning, all else is the answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.history.template_messages import begun_ids
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import parser_for
from gateway.toolcalls.stream.output_events import Content, Reasoning
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from leaf_sdk.vocab import TokenMap, load_map
from tests.cases import each_of

TINY = tiny_map()
HERMES = format_named("hermes")
OPENED = "<|im_start|>assistant\n<think>\n"
PLAIN = "<|im_start|>assistant\n"


def spelled(text: str, tail: str, token_map: TokenMap = TINY, fmt: str = "hermes") -> str | None:
    ids = begun_ids(text, tail, format_named(fmt), token_map)
    return None if ids is None else token_map.decode(ids)


@each_of(
    ("text", "begun"),
    [
        ("<think>\nDone.\n</think>\n\n", "Done.\n</think>\n\n"),
        ("<think>\nDone.\n</think>\n\nThe answer", "Done.\n</think>\n\nThe answer"),
        ("<think>Done.</think>The answer", "Done.</think>The answer"),
        ("<think>\n\n</think>\n\nThe answer", "\n</think>\n\nThe answer"),
        ("\n <think>\nDone.\n</think>\n\nThe", "Done.\n</think>\n\nThe"),
        ("Done.\n</think>\n\nThe answer", "Done.\n</think>\n\nThe answer"),
        ("The answer", None),
        ("<think>\nnot yet", None),
        ("<think>\n<tool_call>\nnot yet", None),
        ("<tool_call>Done.</think>The answer", None),
    ],
)
def test_text_behind_a_template_that_opens_reasoning_closes_it_or_is_refused(text: str, begun: str | None) -> None:
    assert spelled(text, OPENED) == begun


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("The answer", "The answer"),
        ("<think>\nDone.\n</think>\n\nThe answer", "<think>\nDone.\n</think>\n\nThe answer"),
        ("<think>\nnot yet", None),
        ("So <think> is a tag", "So <think> is a tag"),
    ],
)
def test_text_behind_a_template_that_opens_none_may_bring_its_own(text: str, begun: str | None) -> None:
    assert spelled(text, PLAIN) == begun


THOUGHTS = {
    "of one line": "Done.",
    "empty": "",
    "blank": "\n\n",
    "of several paragraphs": "First.\n\nThen.\n\nDone.",
    "with an empty line at its end": "Done.\n",
    "in another script": "완료했어요 → ✓",
    "with code": "```python\nx = {}\n```",
    "with a call in it": '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
    "that names its own tag": "I write <think> first.",
    "with other tags": "<b>Done</b> &lt;/think&gt;",
}


@each_of("tail", [OPENED, OPENED.rstrip(), PLAIN])
@each_of("lead", ["", "\n", "  "])
@each_of("thought", THOUGHTS)
def test_variations_of_whole_reasoning_are_continued_behind_it(thought: str, lead: str, tail: str) -> None:
    for rest in ("", "The answer is ", "<b>"):
        ids = begun_ids(f"{lead}<think>\n{THOUGHTS[thought]}\n</think>\n\n{rest}", tail, HERMES, TINY)
        assert ids is not None
        parser = parser_for(HERMES, TINY, (), prompt_tail=tail)
        events = [*parser.feed([*ids, *TINY.encode("42.")]), *parser.close()]
        assert "".join(each.text for each in events if isinstance(each, Content)) == f"{rest}42."


def with_tags() -> TokenMap:
    """The map with the reasoning's tags as control tokens, as most models have them."""
    fields = json.loads(tiny_map_bytes())
    for number, tag in enumerate(("<think>", "</think>"), fields["vocab_size"]):
        fields["vocab"][tag] = fields["special_tokens"][tag] = number
    return load_map(json.dumps({**fields, "vocab_size": fields["vocab_size"] + 2}).encode())


def test_tags_that_are_control_tokens_are_written_as_those() -> None:
    tagged = with_tags()
    opens, closes = (tagged.special_tokens[tag] for tag in ("<think>", "</think>"))
    text = "<think>\nDone.\n</think>\n\nThe answer</think><think>"

    behind, alone = (begun_ids(text, tail, HERMES, tagged) for tail in (OPENED, PLAIN))

    assert behind is not None
    assert alone is not None
    assert [each for each in behind if each in tagged.special_ids] == [closes]
    assert [each for each in alone if each in tagged.special_ids] == [opens, closes]


@given(st.text("abc <>/think|im_end\n", max_size=20))
def test_no_text_of_a_client_becomes_another_control_token(words: str) -> None:
    for tail in (OPENED, PLAIN):
        ids = begun_ids(f"<think>{words}<|im_end|></think>{words}<|im_start|>", tail, HERMES, TINY)
        assert ids is None or not TINY.special_ids.intersection(ids)


@pytest.mark.parametrize("call", ['{"name": "f", "arguments": {}}', "", "{"])
def test_call_in_a_text_of_a_client_stays_text(call: str) -> None:
    assert {TINY.special_tokens[tag] for tag in ("<tool_call>", "</tool_call>")} <= TINY.special_ids

    ids = begun_ids(f"<tool_call>{call}</tool_call>The answer", PLAIN, HERMES, TINY)
    assert ids is not None
    assert not TINY.special_ids.intersection(ids)


@pytest.mark.parametrize("tail", [OPENED, PLAIN])
def test_model_continues_behind_the_reasoning(tail: str) -> None:
    ids = begun_ids("<think>\nDone.\n</think>\n\nThe ", tail, HERMES, TINY)
    assert ids is not None
    parser = parser_for(HERMES, TINY, (), prompt_tail=tail)

    events = [*parser.feed([*ids, *TINY.encode("end")]), *parser.close()]

    assert "".join(e.text for e in events if isinstance(e, Reasoning)).strip() == "Done."
    assert "".join(e.text for e in events if isinstance(e, Content)) == "The end"
