"""Who sees the text of conversations: by the settings, by how the console is reached, and by the switch."""

import json
from pathlib import Path
from typing import Any

import pytest

from codec_console.words import Words, words_of
from gateway.config.access import ConsoleConfig, OAuthConfig
from gateway.config.gateway_config import AuditConfig, GatewayConfig, ServeConfig

pytestmark = pytest.mark.anyio
TOKEN = "an-operators-token-of-40-characters-here"
SWITCH = "/console/texts"


def config(texts: Any = "auto", **serve: Any) -> GatewayConfig:
    return GatewayConfig(console=ConsoleConfig(texts=texts), serve=ServeConfig(**serve))


def shown(config: GatewayConfig, chosen: bool | None = None, direct: bool = True) -> bool:
    return words_of(config, chosen=chosen, direct=direct).shown


def test_text_is_shown_by_default_where_all_callers_are_the_operator(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"

    assert shown(GatewayConfig())
    assert shown(config(keys=keys))
    assert shown(config(admin_host="::1"))
    assert not shown(config(admin_host="0.0.0.0"))
    assert not shown(config(), direct=False)
    assert not shown(
        config(oauth=OAuthConfig("https://issuer.example", audience="here", resource="https://here.example/mcp"))
    )
    keys.touch()
    assert not shown(config(keys=keys))


def test_visitor_may_switch_both_ways_only_with_auto() -> None:
    elsewhere = config(admin_host="0.0.0.0")

    assert [shown(elsewhere, chosen) for chosen in (None, True, False)] == [False, True, False]
    assert [shown(config(), chosen) for chosen in (None, True, False)] == [True, True, False]
    assert shown(elsewhere, True, direct=False)
    for chosen in (None, True, False):
        assert words_of(config("off"), chosen=chosen, direct=True) == Words(shown=False, can_switch=False)
        assert words_of(config("on"), chosen=chosen, direct=False) == Words(shown=True, can_switch=False)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A key file, with which text is not shown at first."""
    path = tmp_path / "keys.toml"
    path.touch(0o600)
    return path


@pytest.fixture
def site_of(run_console, settings_of, keys: Path, tmp_path: Path) -> Any:
    """A console of this setting, with API keys and an audit log."""

    def run(texts: str = "auto") -> Any:
        console = ConsoleConfig(texts=texts, token=TOKEN)  # pyright: ignore[reportArgumentType]
        audit = AuditConfig(path=tmp_path / "audit.jsonl")
        return run_console(settings_of(console=console, serve=ServeConfig(keys=keys), audit=audit))

    return run


def audited(folder: Path) -> list[tuple[str, str, str, str]]:
    lines = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    return [(each["principal"], each["method"], each["tool"], each["outcome"]) for each in lines]


async def test_switch_holds_for_one_session_and_is_audited(site_of, tmp_path: Path, page_of) -> None:
    async with site_of() as site:
        browser = site.browser
        await browser.sign_in()
        before = await browser.page("/console/why")
        answer = await browser.send(SWITCH, {"texts": "on", "back": "/console/why?x=1"})
        after = await browser.page("/console/why")
        mine = dict(browser.http.cookies)
        browser.http.cookies.clear()
        await browser.sign_in()
        other = await browser.page("/console/why")
        browser.http.cookies.clear()
        browser.http.cookies.update(mine)
        await browser.send(SWITCH, {"texts": "off"})
        hidden = await browser.page("/console/why")

    assert (answer.status_code, answer.headers["location"]) == (303, "/console/why?x=1")
    words = [page.one("form", class_="switch").one("button").text for page in (before, after, other, hidden)]
    assert words == ["Show text", "Hide text", "Show text", "Show text"]
    assert "what every caller and model wrote" in before.one("form", class_="switch").text
    assert audited(tmp_path) == [
        ("operator", "console/texts", "on", "ok"),
        ("operator", "console/texts", "off", "ok"),
    ]


async def test_switch_can_not_be_used_without_a_session_or_by_another_page(site_of, tmp_path: Path) -> None:
    async with site_of() as site:
        browser = site.browser
        signed_out = await browser.post(SWITCH, {"texts": "on", "csrf": "x"})
        await browser.sign_in()
        csrf = await browser.csrf()
        form = {"texts": "on", "csrf": csrf}
        refused = [
            await browser.post(SWITCH, {"texts": "on"}),
            await browser.post(SWITCH, {"texts": "on", "csrf": "x" * 43}),
            await browser.post(SWITCH, form, origin="http://127.0.0.1:9999", **{"sec-fetch-site": "same-site"}),
            await browser.post(SWITCH, form, origin="null", **{"sec-fetch-site": ""}),
            await browser.post(SWITCH, form, origin="", **{"sec-fetch-site": ""}),
        ]
        got = await browser.get(f"{SWITCH}?texts=on&csrf={csrf}")
        page = await browser.page("/console/why")

    assert (signed_out.status_code, got.status_code) == (401, 405)
    assert [each.status_code for each in refused] == [403] * 5
    assert page.one("form", class_="switch").one("button").text == "Show text"
    assert not (tmp_path / "audit.jsonl").exists() or audited(tmp_path) == []


@pytest.mark.parametrize(("texts", "says"), [("off", "the configuration forbids it"), ("on", "with secrets masked")])
async def test_configured_choice_can_not_be_switched(site_of, tmp_path: Path, texts: str, says: str) -> None:
    async with site_of(texts) as site:
        await site.browser.sign_in()
        refused = await site.browser.send(SWITCH, {"texts": "on" if texts == "off" else "off"})
        page = await site.browser.page("/console/why")

    assert refused.status_code == 403
    assert f"console.texts = &#34;{texts}&#34;" in refused.text
    assert page.all("form", class_="switch") == []
    assert says in page.one("footer").text
    assert audited(tmp_path) == [("operator", "console/texts", "on" if texts == "off" else "off", "refused")]


@pytest.mark.parametrize(
    "back",
    ["https://elsewhere.example/", "//elsewhere.example", "/\\elsewhere.example", "javascript:alert(1)", "", "/"],
)
async def test_switch_leads_back_to_pages_of_the_console_only(site_of, back: str) -> None:
    async with site_of() as site:
        await site.browser.sign_in()
        answer = await site.browser.send(SWITCH, {"texts": "on", "back": back})

    assert answer.headers["location"] == "/console/conversations"
