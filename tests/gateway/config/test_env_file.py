"""Lines of NAME=value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.source import parse_env_file
from gateway.errors import ConfigError
from tests.cases import each_of

plain = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="\"'#"), max_size=8)


@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,6}", fullmatch=True), plain))
def test_what_is_written_is_read(variables: dict[str, str]) -> None:
    text = "\n".join(f"{name}={value}" for name, value in variables.items())

    assert parse_env_file(text, "f") == variables


@each_of(
    ("line", "value"),
    [
        ("A=b # said why", "b"),
        ("A=b#c", "b#c"),
        ("A='b # c' # why", "b # c"),
        ('export A = "b c"', "b c"),
        ("A=", ""),
        ("A=b=c", "b=c"),
        ("A='open", "'open"),
        ("A=${B}", "${B}"),
    ],
)
def test_quotes_and_comments_are_taken_off(line: str, value: str) -> None:
    assert parse_env_file(f"\n# first\n  {line}  \n", "f") == {"A": value}


@pytest.mark.parametrize("line", ["A", "=b", "1A=b", "a b=c"])
def test_line_that_sets_nothing_is_refused_by_number(line: str) -> None:
    with pytest.raises(ConfigError, match="f: line 2: expected NAME=value"):
        parse_env_file(f"A=b\n{line}\n", "f")
