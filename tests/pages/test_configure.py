"""docs/configure.md says what the code does."""

import re
from pathlib import Path

import pytest

from gateway.config.load import load_config

PAGE = Path(__file__).parents[2] / "docs" / "configure.md"


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(4))
def test_example_of_the_page_loads(tmp_path: Path, number: int) -> None:
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text(examples("json")[0])
    (tmp_path / "codec-gateway.toml").write_text(examples("toml")[number])

    config = load_config(None, environ={"LLAMA_API_KEY": "k", "SEARCH_TOKEN": "t"}, cwd=tmp_path)

    assert config.upstreams or config.engines or config.serve.host == "0.0.0.0"
    assert len(examples("toml")) == 4
