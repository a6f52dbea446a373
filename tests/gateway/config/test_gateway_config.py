"""What a server's settings say about it."""

from dataclasses import replace

import pytest

from gateway.config.access import ExchangeConfig
from gateway.config.gateway_config import SignInConfig, UpstreamConfig
from gateway.config.overrides import ToolOverride


@pytest.mark.parametrize(
    ("server", "transport", "sessions"),
    [
        (UpstreamConfig("a", command="x"), "stdio", 64),
        (UpstreamConfig("a", url="http://a"), "http", 1000),
        (UpstreamConfig("a", manifest="/a.json"), "bolt-on", 1000),
        (UpstreamConfig("a", command="x", client_sessions=3), "stdio", 3),
    ],
)
def test_server_is_reached_as_its_entry_says_and_has_fewer_sessions_if_each_is_a_process(
    server: UpstreamConfig, transport: str, sessions: int
) -> None:
    assert (server.transport, server.most_client_sessions) == (transport, sessions)


def test_server_runs_on_where_only_what_clients_see_of_it_changes() -> None:
    server = UpstreamConfig("a", command="x")

    assert server.runs_like(replace(server, overrides={"t": ToolOverride("u")}, results="table"))
    assert not server.runs_like(replace(server, timeout=1.0))


@pytest.mark.parametrize(
    ("server", "per_user", "has_pages"),
    [
        (UpstreamConfig("a", url="http://a"), False, False),
        (UpstreamConfig("a", url="http://a", auth=SignInConfig()), False, False),
        (UpstreamConfig("a", url="http://a", auth=SignInConfig(per_user=True)), True, True),
        (UpstreamConfig("a", url="http://a", exchange=ExchangeConfig("id")), True, False),
    ],
)
def test_each_user_is_itself_at_a_server_with_sign_ins_or_exchanged_tokens(
    server: UpstreamConfig, per_user: bool, has_pages: bool
) -> None:
    assert (server.is_per_user, server.has_user_pages) == (per_user, has_pages)


def test_page_of_a_sign_in_is_beside_the_address_to_which_browsers_come_back() -> None:
    sign_in = SignInConfig(redirect_url="https://g.example/base/sign-in/callback")

    assert sign_in.user_page("a b") == "https://g.example/base/sign-in?server=a+b"
