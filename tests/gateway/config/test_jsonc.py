"""JSON with comments and trailing commas, and what is not JSON."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.source import parse_jsonc
from gateway.errors import ConfigError

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    max_leaves=8,
)


@given(values)
def test_plain_json_means_what_json_says(value: object) -> None:
    assert parse_jsonc(json.dumps(value, indent=1), "f") == value


@given(values)
def test_comments_between_tokens_change_nothing(value: object) -> None:
    # With an indent every line break stands between two tokens.
    text = json.dumps(value, indent=1).replace("\n", ' // "note", [1,]\n /* and /* \n more */')

    assert parse_jsonc(text, "f") == value


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_our_own_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse_jsonc(text, "f")


def test_what_looks_like_a_comment_inside_a_string_stays() -> None:
    text = r'{"url": "https://a//b", "glob": "/* x */", "quote": "\"// no", "comma": ",]"}'

    assert parse_jsonc(text, "f") == {"url": "https://a//b", "glob": "/* x */", "quote": '"// no', "comma": ",]"}


def test_trailing_commas_go_even_before_a_comment() -> None:
    assert parse_jsonc('{"a": [1, 2, /* end */ ], // x\n }', "f") == {"a": [1, 2]}


@pytest.mark.parametrize("text", ["[,]", "[1,,2]", "{,}", "/* open", "[1] 2", "'a'"])
def test_what_no_editor_allows_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_jsonc(text, "f")


def test_position_of_a_mistake_counts_comments_in() -> None:
    with pytest.raises(ConfigError, match="line 3, column 8"):
        parse_jsonc("// one\n/* two\n*/ [1, oops]", "f")
