"""`${...}`: what stands for what, and what never happens twice."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.source import Expander, input_variable
from gateway.errors import ConfigError

WORKSPACE = Path("/srv/project")
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda n: n not in {"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator"}
)


def expand(text: str, **environ: str) -> tuple[str, frozenset[str]]:
    return Expander(environ, WORKSPACE).expand(text, "here")


@given(st.text().filter(lambda t: "${" not in t))
def test_text_without_a_form_stays_as_it_is(text: str) -> None:
    assert expand(text) == (text, frozenset())


@given(names, st.text(min_size=1), st.sampled_from(["${%s}", "${env:%s}", "${%s:-other}", "${env:%s:-other}"]))
def test_value_of_a_variable_is_put_in_once_and_remembered(name: str, value: str, form: str) -> None:
    text, secrets = Expander({name: value}, WORKSPACE).expand(f"<{form % name}>", "here")

    assert text == f"<{value}>"
    assert secrets == {value}


def test_value_that_holds_a_form_is_not_expanded_again() -> None:
    assert expand("${A}", A="${B}", B="secret") == ("${B}", frozenset({"${B}"}))


def test_default_stands_for_an_unset_or_empty_variable_and_is_no_secret() -> None:
    assert expand("${A:-x:-y}") == ("x:-y", frozenset())
    assert expand("${A:-x}", A="") == ("x", frozenset())
    assert expand("${A:-}") == ("", frozenset())


def test_empty_variable_is_set() -> None:
    assert expand("<${A}>", A="") == ("<>", frozenset())


def test_folders_are_no_secrets() -> None:
    text, secrets = expand("${workspaceFolder}${/}${workspaceFolderBasename}${pathSeparator}${userHome}")

    assert text == f"/srv/project/project/{Path.home()}"
    assert secrets == frozenset()


@pytest.mark.parametrize("text", ["${}", "${ A}", "${file}x${command:pick}", "${env:}", "${1A}"])
def test_unknown_form_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ConfigError, match="here: ") as caught:
        expand(text, file="a")

    assert "${X:-default}" in caught.value.message


def test_dollar_without_a_closed_brace_is_plain_text() -> None:
    assert expand("$A ${A $5 $(x)")[0] == "$A ${A $5 $(x)"


def test_name_of_an_input_becomes_a_variable() -> None:
    assert input_variable("github-token 2") == "CODEC_GATEWAY_INPUT_GITHUB_TOKEN_2"
    assert expand("${input:a-b}", CODEC_GATEWAY_INPUT_A_B="v") == ("v", frozenset({"v"}))
