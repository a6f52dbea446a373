"""How a person signs in to a server, as it is configured: what is missing or contradicts itself is refused."""

from pathlib import Path

import pytest

from gateway.config.load import load_config
from gateway.errors import ConfigError
from tests.gateway.config.own_files import own


@pytest.mark.parametrize("key", ["token_url", "issuer"])
def test_authorization_server_that_is_no_url_is_refused_by_its_key(tmp_path: Path, key: str) -> None:
    path = own(
        tmp_path,
        f"""
        [upstreams.far]
        url = "https://far.example/mcp"
        oauth = {{ client_id = "me", client_secret = "hush", {key} = "far.example" }}
        """,
    )

    with pytest.raises(ConfigError, match=rf"oauth\.{key}.*expected http://HOST"):
        load_config(path, environ={}, cwd=Path("/"))


def test_sign_in_of_each_user_has_a_page_and_no_credentials_beside_it(tmp_path: Path) -> None:
    settings = '[upstreams.far]\nurl = "https://far.example/mcp"\n{}[upstreams.far.auth]\nper_user = true\n{}\n'
    redirect = 'redirect_url = "https://gw.example/tools/sign-in/callback"'
    (far,) = load_config(own(tmp_path, settings.format("", redirect)), environ={}, cwd=Path("/")).upstreams
    assert far.is_per_user
    assert far.auth is not None
    assert far.auth.user_page("a&b") == "https://gw.example/tools/sign-in?server=a%26b"

    path = own(tmp_path, settings.format('headers = { Authorization = "Bearer x" }\n', redirect))
    with pytest.raises(ConfigError, match="which every caller would use"):
        load_config(path, environ={}, cwd=Path("/"))


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        ('issuer = "as.example"', r"auth\.issuer.*expected http://HOST"),
        ('redirect_url = "http://gateway.example/callback"', r"auth\.redirect_url.*expected https"),
        ('client_metadata_url = "https://me.example/"', r"auth\.client_metadata_url.*https://HOST/PATH"),
        ('client_metadata_url = "http://me.example/c"', r"auth\.client_metadata_url.*https://HOST/PATH"),
        ('client_id = "me"', r"'auth\.client_id' without 'auth\.issuer'"),
        ('client_secret = "x"', r"'auth\.client_secret' without 'auth\.client_id'"),
        ("per_user = true", r"'auth\.per_user', which needs 'auth\.redirect_url'.*/sign-in/callback"),
        ('per_user = true, redirect_url = "https://gw.example/callback"', r"needs 'auth\.redirect_url'"),
        ('per_user = true, redirect_url = "https://gw.example/sign-in/callback?x"', r"needs 'auth\.redirect_url'"),
        ('per_user = true, redirect_url = "http://gw.example/sign-in/callback"', r"auth\.redirect_url.*expected https"),
    ],
)
def test_sign_in_that_could_go_wrong_is_refused_by_its_key(tmp_path: Path, auth: str, words: str) -> None:
    path = own(tmp_path, f'[upstreams.far]\nurl = "https://far.example/mcp"\nauth = {{ {auth} }}\n')

    with pytest.raises(ConfigError, match=words):
        load_config(path, environ={}, cwd=Path("/"))


def test_sign_in_needs_a_url_and_no_other_credentials(tmp_path: Path) -> None:
    for server, words in (
        ('command = "x"\nauth = { scope = "a" }', "has 'auth', which needs 'url'"),
        (
            'url = "https://a/mcp"\nauth = { scope = "a" }\noauth = { client_id = "a", client_secret = "b" }',
            "has both 'oauth'",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            load_config(own(tmp_path, f"[upstreams.far]\n{server}\n"), environ={}, cwd=Path("/"))
