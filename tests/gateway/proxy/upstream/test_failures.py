"""What people read when an upstream is away."""

from dataclasses import replace

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import UpstreamUnavailable
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError
from gateway.proxy.upstream.supervision.lifecycle import describe_ending, describe_failure
from tests.cases import each_of

CHILD = UpstreamConfig(name="a", command="tool")
WEB = UpstreamConfig(name="a", url="http://127.0.0.1/mcp")


@each_of(
    ("failure", "words"),
    [
        (
            FileNotFoundError(2, "No such file"),
            "its command 'tool' does not exist or is not on PATH: install it, or give its whole path",
        ),
        (PermissionError(13, "Permission denied"), "PermissionError: [Errno 13] Permission denied"),
        (TimeoutError(), "it did not answer in time"),
        (TimeoutError("not within 60 s (limits.start_timeout)"), "not within 60 s (limits.start_timeout)"),
        (LinkLost(""), "its process ended"),
        (LinkLost("Connection reset"), "Connection reset"),
        (NoAnswer("its answer is not JSON"), "its answer is not JSON"),
        (PeerError({"code": -1, "message": "no\x1b[31m\nlicence"}), "no\\x1b[31m\\nlicence"),
        (UpstreamUnavailable("lists without end", server="a"), "lists without end"),
        (ExceptionGroup("g", [ExceptionGroup("h", [OSError("first")]), OSError("second")]), "OSError: first"),
    ],
)
def test_failure_is_one_sentence(failure, words):
    assert describe_failure(failure, CHILD) == words


def test_words_of_a_server_are_cut():
    assert len(describe_failure(NoAnswer("x" * 10_000), CHILD)) < 400


def test_end_of_a_connection_is_named_by_its_kind():
    assert (describe_ending(CHILD), describe_ending(WEB)) == ("its process ended", "its connection ended")


def test_secret_of_the_configuration_is_masked_even_where_the_words_are_cut():
    secret = "tok-5555-6666-7777"
    config = replace(CHILD, secrets=frozenset({secret}))

    words = describe_failure(NoAnswer("x" * 290 + secret), config)

    assert "tok-" not in words
    assert describe_failure(NoAnswer(f"bad key {secret}"), config) == "bad key ****"
