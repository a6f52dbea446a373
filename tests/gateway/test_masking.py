"""No secret is shown: not alone, not inside another text, not by a name that gives it away."""

import json
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.gateway_config import EngineConfig, GatewayConfig, ServeConfig, TokensConfig, UpstreamConfig
from gateway.config.show import secrets_of, show_config
from gateway.escape import MASK, mask_text, mask_value, secret_places, sounds_secret
from tests.cases import each_of

# Digits that stand in no key, default or mask of ours.
secrets = st.text(alphabet="7✓β", min_size=4, max_size=12)
around = st.text(alphabet="abc-/ =", max_size=8)


@given(st.lists(secrets, min_size=1, max_size=3), st.data())
def test_no_secret_of_a_server_is_shown_wherever_it_stands(values: list[str], data: st.DataObject) -> None:
    def place() -> str:
        return data.draw(around) + data.draw(st.sampled_from(values)) + data.draw(around)

    config = GatewayConfig(
        upstreams=(
            UpstreamConfig(
                name="local",
                command=place(),
                args=(place(), place()),
                env=MappingProxyType({"PLAIN": place()}),
                secrets=frozenset(values),
            ),
            UpstreamConfig(name="far", url="https://h/" + place(), headers=MappingProxyType({"X": place()})),
        ),
        engine=EngineConfig(kind="url", url="http://h/" + place(), api_key=place()),
        tokens=TokensConfig(map=place()),
        serve=ServeConfig(token=place(), allowed_hosts=(place(),)),
        warnings=(place(),),
    )

    shown = json.dumps(show_config(config), ensure_ascii=False)

    assert not [value for value in values if value in shown]


def test_secrets_of_a_configuration_are_those_of_its_servers_its_engine_and_its_own_token() -> None:
    config = GatewayConfig(
        upstreams=(UpstreamConfig(name="a", command="x", secrets=frozenset({"s-1", "s-2"})),),
        engine=EngineConfig(api_key="k-1"),
        serve=ServeConfig(token="t-1"),
    )

    assert secrets_of(config) == {"s-1", "s-2", "k-1", "t-1"}
    assert secrets_of(GatewayConfig()) == frozenset()


@given(st.text(min_size=1, max_size=6), st.lists(st.text(alphabet="+", max_size=2)))
def test_text_that_is_a_secret_is_never_shown_however_short(secret: str, others: list[str]) -> None:
    assert mask_text(secret, {secret, *others}) == MASK


def test_longer_secret_is_masked_before_the_one_inside_it() -> None:
    assert mask_text("Bearer-abcd-efgh abcd", {"abcd", "Bearer-abcd-efgh"}) == f"{MASK} {MASK}"


def test_name_of_a_map_stays_readable_though_it_came_from_a_variable() -> None:
    name = "sha256:" + "5e" * 32
    assert mask_text(f"ids of map {name}, token hunter22", {name, "hunter22"}) == f"ids of map {name}, token {MASK}"
    assert mask_text(name[7:], {name[7:]}) == MASK


def test_short_secret_does_not_blank_out_other_texts() -> None:
    assert mask_text("1", {"1"}) == MASK
    assert mask_text("port 1 of 11", {"1", ""}) == "port 1 of 11"


@each_of(
    "name",
    [
        "GITHUB_TOKEN",
        "token",
        "X-Api-Key",
        "apiKey",
        "APIKEY",
        "dbPassword",
        "client_secret",
        "Authorization",
        "Cookie",
        "AWS_SECRET_ACCESS_KEY",
        "--api-key",
        "OPENAI_KEY",
        "authToken",
        "SENTRY_DSN",
    ],
)
def test_name_that_sounds_secret_hides_its_value(name: str) -> None:
    assert mask_value(name, "abc") == MASK


@each_of("name", ["tokens", "result_tokens", "key", "keyboard", "author", "PORT", "monkey", "", "prompt_n"])
def test_name_that_only_looks_alike_shows_its_value(name: str) -> None:
    assert not sounds_secret(name)
    assert mask_value(name, "abc") == "abc"


def test_empty_value_of_a_secret_is_shown_as_empty() -> None:
    assert mask_value("TOKEN", "") == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ****"),
        ("basic dXNlcjpwYXNz", "basic ****"),
        ("https://me:pass@host/x", "https://****@host/x"),
        ("a bearer of news", "a bearer of news"),
        ("https://host/a@b", "https://host/a@b"),
    ],
)
def test_shapes_that_carry_a_secret_are_masked_in_any_text(text: str, shown: str) -> None:
    assert mask_text(text) == shown


def test_places_of_secrets_are_those_that_are_masked() -> None:
    text = "a hunter22 b Bearer abcdef7 c https://u:p@h hunter22"
    places = [text[start:end] for start, end in secret_places(text, ["hunter22", "other"])]

    assert sorted(places) == [" abcdef7", "hunter22", "hunter22", "u:p"]
    assert mask_text(text, ["hunter22", "other"]) == "a **** b Bearer **** c https://****@h ****"


def test_short_secret_and_a_map_s_name_have_no_place() -> None:
    name = "sha256:" + "5e" * 32

    assert list(secret_places(f"abc {name} abcd", ["abc", name, "abcd"])) == [(len(name) + 5, len(name) + 9)]
