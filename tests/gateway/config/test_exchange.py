"""`[upstreams.NAME.exchange]`: what it needs, what it contradicts, and that its secret is never shown."""

import json
from pathlib import Path

import pytest

from gateway.config.access import ExchangeConfig
from gateway.config.gateway_config import GatewayConfig
from gateway.config.load import load_config
from gateway.config.show import secrets_of, show_config
from gateway.errors import ConfigError

OAUTH = '[serve.oauth]\nissuer = "https://login.example"\nresource = "https://gateway.example/mcp"\n'
DOCS = '[upstreams.docs]\nurl = "https://docs.example/mcp"\n'
EXCHANGE = '[upstreams.docs.exchange]\nclient_id = "gateway"\n'
ISSUER = 'issuer = "https://login.example"\n'


def load(folder: Path, text: str) -> GatewayConfig:
    (folder / "codec-gateway.toml").write_text(text)
    return load_config(None, environ={"SECRET": "hush-hush"}, cwd=folder)


def test_all_of_it_is_read_and_its_secret_is_masked(tmp_path: Path) -> None:
    more = 'client_secret = "${env:SECRET}"\naudience = "docs"\nresource = ""\nscope = "a b"\n'
    more += 'subject_token_type = "urn:x"\n'
    config = load(tmp_path, OAUTH + DOCS + EXCHANGE + ISSUER + more)
    (docs,) = config.upstreams
    assert docs.exchange == ExchangeConfig(
        "gateway", "hush-hush", None, "https://login.example", "docs", "", "a b", "urn:x"
    )
    assert docs.is_per_user
    assert not docs.has_user_pages
    assert "hush-hush" in secrets_of(config)
    shown = show_config(config)["upstreams"]["docs"]["exchange"]
    assert shown["issuer"] == "https://login.example"
    assert "hush-hush" not in json.dumps(shown)
    assert "hush-hush" not in repr(docs.exchange)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OAUTH + DOCS + EXCHANGE, "without 'exchange.issuer'"),
        (OAUTH + DOCS + EXCHANGE + 'issuer = "login.example"', "key 'exchange.issuer': expected http"),
        (OAUTH + DOCS + EXCHANGE + 'token_url = "file:///x"', "key 'exchange.token_url': expected http"),
        (OAUTH + DOCS + 'headers = { authorization = "x" }\n' + EXCHANGE + ISSUER, "Authorization header"),
        (
            OAUTH
            + DOCS
            + 'auth = { per_user = true, redirect_url = "https://g.example/sign-in/callback" }\n'
            + EXCHANGE
            + ISSUER,
            "both 'exchange'",
        ),
        (DOCS + EXCHANGE + ISSUER, "callers bring no access tokens: set 'serve.oauth'"),
        (OAUTH + '[upstreams.docs]\ncommand = "x"\n' + EXCHANGE + ISSUER, "has 'exchange', which needs 'url'"),
        (OAUTH + DOCS + "[upstreams.docs.exchange]\n" + ISSUER, "client_id"),
    ],
)
def test_what_it_lacks_or_contradicts_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)
    assert words in str(refused.value)


def test_gateway_s_own_credentials_or_sign_in_may_stand_beside_it(tmp_path: Path) -> None:
    own = '[upstreams.docs.oauth]\nclient_id = "gateway"\nclient_secret = "x"\n'
    assert load(tmp_path, OAUTH + DOCS + EXCHANGE + ISSUER + own).upstreams[0].oauth
    sign_in = f"[upstreams.docs.auth]\n{ISSUER}"
    assert load(tmp_path, OAUTH + DOCS + EXCHANGE + ISSUER + sign_in).upstreams[0].auth
