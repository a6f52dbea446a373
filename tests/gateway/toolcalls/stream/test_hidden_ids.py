"""Control tokens are hidden wherever a model writes them; markup, words and texts that somebody waits for are not."""

import gc
import json
import weakref

import pytest

from gateway.context.memory.remembered import cut_turn
from gateway.toolcalls.stream.spelling import TokenReader, hidden_ids, spelled
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from leaf_sdk.vocab import TokenMap, load_map
from tests.cases import each_of

TINY = tiny_map()
START = TINY.special_tokens["<|im_start|>"]


def map_with(*tokens: str) -> TokenMap:
    fields = json.loads(tiny_map_bytes())
    first = max(fields["vocab"].values()) + 1
    added = {token: first + number for number, token in enumerate(tokens)}
    fields["vocab"] |= added
    fields["special_tokens"] |= added
    return load_map(json.dumps(fields).encode())


@each_of(
    "token", ["<|im_start|>", "<|fim_middle|>", "<｜eos｜>", "[|endofturn|]", "<s>", "</s>", "<end_of_turn>", "[INST]"]
)
def test_control_token_is_hidden(token: str) -> None:
    token_map = TINY if token in TINY.special_tokens else map_with(token)
    assert token_map.special_tokens[token] in hidden_ids(token_map)


@pytest.mark.parametrize("token", ["<answer>", "</think>", "<tool_call>", "Zürich", "[1]", "<file_sep>"])
def test_special_token_that_may_be_part_of_an_answer_is_shown(token: str) -> None:
    token_map = TINY if token in TINY.special_tokens else map_with(token)
    assert token_map.special_tokens[token] not in hidden_ids(token_map)


@pytest.mark.parametrize("shown", ["<|im_start|>", "\n<|im_start|>user"])
def test_token_in_a_text_that_somebody_waits_for_is_shown(shown: str) -> None:
    assert START not in hidden_ids(TINY, ["<tool_call>", shown])
    assert TINY.special_tokens["<|im_end|>"] in hidden_ids(TINY, ["<tool_call>", shown])


def test_turn_is_cut_where_its_client_saw_it_end_in_spite_of_hidden_tokens() -> None:
    one, two = TINY.encode("one "), TINY.encode("two three")
    assert cut_turn([*one, START, *two], "one two three", "one two", TINY, hidden_ids(TINY)) == [
        *one,
        START,
        *TINY.encode("two"),
    ]


def test_id_that_the_map_does_not_have_has_no_text() -> None:
    one, two = TINY.encode("one "), TINY.encode("two")
    padding = len(TINY) + 1
    assert not TINY.has_id(padding)

    text = TokenReader(TINY, {}, hidden_ids(TINY)).feed([*one, padding, *two])
    assert text == "one two"
    assert (spelled(TINY, padding), spelled(TINY, one[0])) == (b"", TINY.token_bytes(one[0]))
    assert cut_turn([*one, padding, *two], "one two", "one t", TINY, hidden_ids(TINY)) is not None


def test_what_is_hidden_is_kept_for_the_last_texts_unless_they_are_long() -> None:
    token_map = map_with("<s>")
    first = hidden_ids(token_map, ["0"])
    again = hidden_ids(token_map, ["0"])
    long = [hidden_ids(token_map, ["x" * 1001]) for _ in range(2)]
    for number in range(1, 17):
        hidden_ids(token_map, [str(number)])

    assert first is again
    assert long[0] is not long[1]
    assert hidden_ids(token_map, ["0"]) is not first


def test_map_whose_hidden_ids_are_kept_is_not_held() -> None:
    token_map = map_with("<s>")
    hidden = hidden_ids(token_map)
    watched = weakref.ref(token_map)
    del token_map
    gc.collect()

    assert watched() is None
    assert 10**6 in hidden
