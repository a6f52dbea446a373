"""Batches of a server: messages where the version has them, and else answers that nobody can use."""

import json
from unittest.mock import ANY

import pytest

from gateway.protocol.mending import MOST, BrokenAnswer, read_batch, split_batch
from gateway.protocol.messages import Failure, Malformed, Notification, Request, Response

PARTS = [
    {"jsonrpc": "2.0", "method": "n", "params": {"a": 1}},
    {"jsonrpc": "2.0", "id": "q", "method": "ping"},
    {"jsonrpc": "2.0", "id": 7, "result": {"x": None}},
    {"jsonrpc": "2.0", "id": 8, "error": {"code": 1, "message": "no"}},
    {"jsonrpc": "2.0", "id": 9, "result": 5},
]
BATCH = json.dumps([*PARTS[:2], 3, "x", *PARTS[2:]]).encode()


def test_batch_is_its_messages_in_order_where_the_version_has_batches():
    assert read_batch(BATCH, "2025-03-26") == [
        Notification("n", {"a": 1}),
        Request("q", "ping", {}),
        Response(7, {"x": None}),
        Failure(8, {"code": 1, "message": "no"}),
        BrokenAnswer(9, ANY),
    ]


@pytest.mark.parametrize("version", ["", "2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28"])
def test_answers_in_a_batch_that_the_version_does_not_have_are_known_and_named(version):
    note, question, *answers = read_batch(BATCH, version)

    assert [type(each) for each in answers] == [BrokenAnswer] * 3
    assert [each.id for each in answers] == [7, 8, 9]
    assert all("JSON-RPC batch" in each.detail and (version or "agreed") in each.detail for each in answers)
    assert note == Malformed(-32600, ANY)
    assert question == Malformed(-32600, ANY, "q")


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"[1, [], null]", b'[{"jsonrpc": ', b"[" * 100_000, b"[" * 500 + b"]" * 500]
)
def test_what_holds_no_message_is_no_batch(data):
    assert read_batch(data, "2025-03-26") == []


def test_messages_of_a_batch_are_read_as_far_as_they_can_be():
    data = rb' [{"jsonrpc":"2.0","id":7,"result":{"a":"\ud800","b":"' + b"\xff" + rb'"}}]'

    assert read_batch(data, "2025-03-26") == [Response(7, {"a": "\ufffd", "b": "\ufffd"})]


def test_batch_of_very_many_is_none():
    most, more = (json.dumps([{}] * count).encode() for count in (MOST, MOST + 1))

    assert [len(split_batch(each)) for each in (most, more)] == [MOST, 0]
    assert read_batch(more, "2025-03-26") == []
