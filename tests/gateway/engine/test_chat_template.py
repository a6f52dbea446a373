"""The embedded engine's chat template: the model's own, a file or `chatml`, and a warning where a model has none."""

from pathlib import Path

import pytest

from gateway.config import EngineConfig, GatewayConfig
from gateway.config.load import load_config
from gateway.engine.start.readiness import EngineRoute
from gateway.errors import ConfigError

pytestmark = pytest.mark.anyio

TEMPLATE = "{% for m in messages %}<|user|>{{ m.content }}{% endfor %}<|bot|>"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [str(record.msg) for record in caplog.records if "no chat template" in str(record.msg)]


async def shown(model: Path, chat_template: str | None) -> str:
    config = EngineConfig(kind="embedded", model=model, context=512, slots=1, chat_template=chat_template)
    route = EngineRoute(GatewayConfig(engine=config), lambda up, reason: None)
    async with route.running():
        return route.ready().facts.chat_template


@pytest.mark.engine
async def test_template_of_a_file_is_the_engines(markers_model: Path, tmp_path: Path, caplog):
    path = tmp_path / "own.jinja"
    path.write_text(TEMPLATE)

    assert await shown(markers_model, str(path)) == TEMPLATE
    assert warnings(caplog) == []


@pytest.mark.engine
async def test_model_without_a_template_is_reported_and_served_with_chatml(markers_model: Path, caplog):
    assert "im_start" in await shown(markers_model, None)
    (warning,) = warnings(caplog)
    assert "engine.chat_template (--chat-template-file)" in warning


@pytest.mark.engine
async def test_chatml_can_be_asked_for_by_its_name(markers_model: Path, caplog):
    assert "im_start" in await shown(markers_model, "chatml")
    assert warnings(caplog) == []


def test_path_of_a_template_is_relative_to_the_file_that_names_it(tmp_path: Path):
    (tmp_path / "own.jinja").write_text(TEMPLATE)
    path = tmp_path / "codec-gateway.toml"
    path.write_text('[engine]\nkind = "embedded"\nchat_template = "own.jinja"\n')

    assert load_config(path, {}, environ={}, cwd=Path("/")).engine.chat_template == str(tmp_path / "own.jinja")
    named = load_config(path, {"engine.chat_template": "chatml"}, environ={}, cwd=Path("/"))
    assert named.engine.chat_template == "chatml"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('kind = "embedded"\nchat_template = "none.jinja"', "expected a file or 'chatml'"),
        ('kind = "embedded"\nchat_template = "llama3"', "expected a file or 'chatml'"),
        ('url = "http://127.0.0.1:9"\nchat_template = "chatml"', "llama-server --chat-template-file"),
    ],
)
def test_template_that_has_no_effect_or_is_not_there_is_refused(tmp_path: Path, lines: str, said: str):
    path = tmp_path / "codec-gateway.toml"
    path.write_text(f"[engine]\n{lines}\n")

    with pytest.raises(ConfigError, match=said):
        load_config(path, {}, environ={}, cwd=tmp_path)
