"""Which ids of a call's region spell its arguments, and when none do."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.results.id_slices import ArgumentIds, spelled_arguments
from leaf_sdk.testing import tiny_map
from tests.cases import each_of

TINY = tiny_map()
OPEN, CLOSE = TINY.special_tokens["<tool_call>"], TINY.special_tokens["</tool_call>"]
PARIS = {"place": "Paris"}
WHOLE = '{"name": "say", "arguments": {"place": "Paris"}}'


def region(text, *, specials=True):
    return TINY.encode(text, specials=specials)


@pytest.mark.parametrize("specials", [True, False])
def test_the_ids_between_the_markers_of_a_whole_call_spell_it_with_its_name(specials):
    ids = region(f"<tool_call>\n{WHOLE}\n</tool_call>", specials=specials)
    found = spelled_arguments(ids, TINY, "say", PARIS)
    assert found is not None
    assert found.name == "say"
    assert json.loads(TINY.decode(found.ids)) == json.loads(WHOLE)
    assert any(ids[at : at + len(found.ids)] == list(found.ids) for at in range(len(ids)))


def test_arguments_alone_spell_no_name():
    ids = [OPEN, *region("say"), *region('{"place": "Paris"}'), CLOSE]
    assert spelled_arguments(ids, TINY, "say", PARIS) == ArgumentIds(tuple(region('{"place": "Paris"}')), None)


def test_llamas_word_for_arguments_counts_too():
    written = '{"name": "say", "parameters": {"place": "Paris"}}'
    assert spelled_arguments(region(written), TINY, "say", PARIS) == ArgumentIds(tuple(region(written)), "say")


@each_of(
    "written",
    [
        "<function=say><parameter=place>Paris</parameter></function>",
        '{"name": "other", "arguments": {"place": "Paris"}}',
        '{"name": "say", "arguments": {"place": "Rome"}}',
        '{"name": "say", "arguments": {"place": "Paris"}',
        '{"name": "say", "arguments": {"place": "Paris"}}}',
        '[{"name": "say", "arguments": {"place": "Paris"}}, {"name": "say", "arguments": {}}]',
        "}{",
        "",
    ],
)
def test_what_does_not_say_exactly_this_call_is_not_sent_as_ids(written):
    assert spelled_arguments(region(written), TINY, "say", PARIS) is None


def test_an_object_that_shares_a_token_with_something_else_is_not_sent_as_ids():
    (token,) = [each for each in TINY.ordinary_ids if TINY.token_bytes(each) == b"x"]
    assert spelled_arguments([token, *region('{"place": "Paris"}')], TINY, "say", PARIS) is not None

    class Merged:
        special_ids = TINY.special_ids
        has_id = TINY.has_id

        def token_bytes(self, token_id):
            return b'x{"' if token_id == token else TINY.token_bytes(token_id)

    assert spelled_arguments([token, *region('place": "Paris"}')], Merged(), "say", PARIS) is None  # pyright: ignore[reportArgumentType]


def test_a_special_token_within_the_object_is_never_sent():
    ids = [*region('{"place": "'), TINY.special_tokens["<|im_end|>"], *region('"}')]
    assert spelled_arguments(ids, TINY, "say", {"place": "<|im_end|>"}) is None


def test_ids_that_the_map_does_not_have_are_no_text():
    assert spelled_arguments([4_000_000, *region('{"place": "Paris"}')], TINY, "say", PARIS) is not None
    assert spelled_arguments([*region('{"place": "Par'), 4_000_000, *region('is"}')], TINY, "say", PARIS) is None


@given(st.lists(st.sampled_from([OPEN, CLOSE, *sorted(TINY.ordinary_ids)]), max_size=30))
def test_whatever_is_sent_says_the_call_and_holds_no_special_token(ids):
    found = spelled_arguments(ids, TINY, "say", {})
    if found is not None:
        assert TINY.special_ids.isdisjoint(found.ids)
        assert json.loads(TINY.decode(found.ids)) in ({}, {"name": "say", "arguments": {}})
