"""`[approvals]`: from a file and from the environment."""

from pathlib import Path

import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.config.load import load_config
from gateway.config.overrides import ApprovalsConfig
from gateway.config.show import show_config
from gateway.errors import ConfigError


def test_nothing_needs_an_approval_unless_the_operator_says_so_and_pins_are_compared(tmp_path: Path) -> None:
    assert load_config(None, environ={}, cwd=tmp_path).approvals == ApprovalsConfig("never", {})
    assert UpstreamConfig("up").pin == "warn"


def test_file_sets_what_needs_approval_and_check_shows_it(tmp_path: Path) -> None:
    lines = ["[approvals]", 'ask = "writes"', "[approvals.tools]", '"up__*" = "never"', '"up__rm" = "always"']
    (tmp_path / "codec-gateway.toml").write_text("\n".join(lines))
    config = load_config(None, environ={}, cwd=tmp_path)

    assert config.approvals == ApprovalsConfig("writes", {"up__*": "never", "up__rm": "always"})
    assert show_config(config)["approvals"] == {"ask": "writes", "tools": {"up__*": "never", "up__rm": "always"}}


def test_environment_sets_the_level_but_no_tools_since_names_have_capitals_that_variables_lose(tmp_path: Path) -> None:
    config = load_config(None, environ={"CODEC_GATEWAY_APPROVALS__ASK": "always"}, cwd=tmp_path)
    assert config.approvals.ask == "always"

    with pytest.raises(ConfigError, match=r"tools can be set only in a file: \[approvals.tools\]"):
        load_config(None, environ={"CODEC_GATEWAY_APPROVALS__TOOLS__UP__RM": "always"}, cwd=tmp_path)


@pytest.mark.parametrize("line", ['ask = "sometimes"', 'tools = { x = "yes" }', "ask = true"])
def test_word_that_is_no_level_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "codec-gateway.toml").write_text(f"[approvals]\n{line}\n")

    with pytest.raises(ConfigError, match="approvals"):
        load_config(None, environ={}, cwd=tmp_path)
