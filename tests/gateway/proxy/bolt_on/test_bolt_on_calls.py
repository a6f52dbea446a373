"""Calls to bolt-ons over real sockets: which ids go out, what becomes of what comes back."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.config.overrides import ToolOverride
from gateway.errors import UnknownTool
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.proxy.bolt_on.bolt_on_tools import Outgoing, match, read_answer, write_call
from gateway.proxy.result_tokens import ResultTokens, UnreadText
from gateway.proxy.results import WrittenIds
from gateway.proxy.transport.transport_interface import Unfit
from leaf_sdk.leaf.bolt_on import CodecToolCall, CodecToolResult, parse_manifest
from leaf_sdk.leaf.contract import CODEC_META_KEY

from .conftest import ACCEPTED, HASH, MEDIA_TYPE, OTHER_HASH, TINY, Accepted, http, manifest, serving

pytestmark = pytest.mark.anyio

SAID = "It rains there."
WROTE = tuple(TINY.encode('{"place": "Oslo"}'))


def says(text):
    return lambda call: CodecToolResult.tokens(call.call_id, tuple(TINY.encode(text)))


def hint(ids=WROTE, name=None):
    return WrittenIds(ids, name)


def shim(metrics):
    counted = metrics.get_shim_metrics()
    return counted["tokenize_calls"], counted["detokenize_calls"]


def form(metrics, word):
    return metrics.registry.get_sample_value("codec_bolt_on_calls_total", {"form": word})


def accept(proxy, maps, by_hash):
    maps.by_hash = by_hash
    proxy.maps_changed()


@pytest.fixture
def metrics():
    return Metrics()


async def test_ids_of_the_model_go_out_as_they_are_and_ids_come_back_unread(bolt_on, proxy_of, metrics):
    async with serving(says(SAID)) as server:
        proxy = proxy_of(bolt_on(manifest(), endpoint=server.endpoint), metrics=metrics, maps=ACCEPTED)
        async with proxy:
            result = await proxy.call("bolt__tell", {"place": "Oslo"}, written=hint())

    (call,) = server.calls
    assert (call.name, call.model_id, call.argument_ids) == ("tell", "org/0", WROTE)
    (block,) = result["content"]
    assert isinstance(block, UnreadText)
    assert block.ids == tuple(TINY.encode(SAID))
    assert shim(metrics) == (0, 0)
    assert form(metrics, "raw") == 1
    assert block.text == block.text == SAID
    assert shim(metrics) == (0, 1)


async def test_ids_of_the_model_do_not_go_out_where_the_operator_adds_an_argument(bolt_on, proxy_of):
    overrides = {"tell": ToolOverride("forecast", defaults={"unit": "C"})}
    async with serving(says(SAID)) as server:
        one = replace(bolt_on(manifest(), endpoint=server.endpoint), overrides=overrides)
        async with proxy_of(one, maps=ACCEPTED) as proxy:
            await proxy.call("forecast", {"place": "Oslo"}, written=hint())
            await proxy.call("forecast", {"place": "Oslo", "unit": "F"}, written=hint())

    first, second = server.calls
    assert (first.name, json.loads(TINY.decode(first.argument_ids))) == ("tell", {"place": "Oslo", "unit": "C"})
    assert second.argument_ids == WROTE


async def test_unread_ids_are_spliced_as_leaf_ids_without_encoding_or_decoding(metrics):
    tokens = ResultTokens(
        {TINY.map_id: TINY}, level="verify", metrics=metrics, notices=TokenNotices(get_logger("test"))
    )
    ids = tuple(TINY.encode(SAID))
    found = tokens.for_engine("tell", {"content": [UnreadText(TINY, ids, metrics.shim_detokenized)]}, TINY)
    assert (found.ids, found.source) == (ids, "leaf")
    assert shim(metrics) == (0, 0)
    assert metrics.get_shim_metrics()["leaf_bypasses"] == 1


async def test_a_client_that_reads_text_gets_text_with_the_ids_beside_it(bolt_on, proxy_of, client, metrics):
    async with serving(says(SAID)) as server:
        proxy = proxy_of(bolt_on(manifest(), endpoint=server.endpoint), metrics=metrics, maps=ACCEPTED)
        async with proxy:
            params = {"name": "bolt__tell", "arguments": {"place": "Oslo"}}
            result = await proxy.handle("tools/call", params, client())

    payload = {"map_id": TINY.map_id, "ids": TINY.encode(SAID)}
    assert result["content"] == [{"type": "text", "text": SAID, "_meta": {CODEC_META_KEY: payload}}]
    assert server.calls[0].argument_ids == WROTE
    assert shim(metrics) == (1, 1)
    assert form(metrics, "encoded") == 1


async def test_a_client_can_not_say_which_ids_a_model_wrote(bolt_on, proxy_of, client, metrics):
    lie = tuple(TINY.encode('{"place": "elsewhere"}'))
    async with serving(says(SAID)) as server:
        proxy = proxy_of(bolt_on(manifest(), endpoint=server.endpoint), metrics=metrics, maps=ACCEPTED)
        async with proxy:
            params = {
                "name": "bolt__tell",
                "arguments": {"place": "Oslo"},
                "_meta": {"ai.codec/argument-ids": {"ids": lie}},
            }
            result = await proxy.handle("tools/call", params, client())

    assert server.calls[0].argument_ids == WROTE
    assert result["content"][0]["text"] == SAID


@pytest.mark.parametrize(
    ("written", "own", "raw"), [("tell", {}, True), ("bolt__tell", {}, True), ("bolt__tell", {"arguments": {}}, False)]
)
async def test_a_whole_call_goes_out_raw_where_the_tool_can_tell_it_from_arguments(
    bolt_on, proxy_of, metrics, written, own, raw
):
    whole = tuple(TINY.encode(json.dumps({"name": written, "arguments": {"place": "Oslo"}})))
    schema = {"type": "object", "properties": {"place": {"type": "string"}, **own}}
    async with serving(says(SAID)) as server:
        proxy = proxy_of(
            bolt_on(manifest(argumentsSchema=schema), endpoint=server.endpoint), metrics=metrics, maps=ACCEPTED
        )
        async with proxy:
            await proxy.call("bolt__tell", {"place": "Oslo"}, written=hint(whole, written))
    assert server.calls[0].argument_ids == (whole if raw else WROTE)


async def test_a_tool_for_another_tokenizer_is_called_with_text_and_a_person_told_once(
    bolt_on, proxy_of, metrics, caplog
):
    async with serving(lambda call: CodecToolResult.said(call.call_id, SAID)) as server:
        proxy = proxy_of(
            bolt_on(manifest(hashes=(OTHER_HASH,)), endpoint=server.endpoint), metrics=metrics, maps=ACCEPTED
        )
        async with proxy:
            proxy.maps_changed()
            results = [await proxy.call("bolt__tell", {"place": "Oslo"}, written=hint()) for _ in range(2)]

    assert [(call.argument_ids, call.arguments_json, call.model_id) for call in server.calls] == [
        (None, '{"place": "Oslo"}', "")
    ] * 2
    assert [result["content"] for result in results] == [[{"type": "text", "text": SAID}]] * 2
    (told,) = [record for record in caplog.records if "no ids for an accepted map" in record.getMessage()]
    assert told.levelname == "WARNING"
    assert OTHER_HASH[:12] in told.getMessage()
    assert HASH[:12] in told.getMessage()
    assert form(metrics, "text") == 2


async def test_ids_in_an_answer_to_a_text_are_refused(bolt_on, proxy_of, metrics):
    async with serving(says(SAID)) as server:
        proxy = proxy_of(
            bolt_on(manifest(hashes=(OTHER_HASH,)), endpoint=server.endpoint), metrics=metrics, maps=ACCEPTED
        )
        async with proxy:
            result = await proxy.call("bolt__tell", {"place": "Oslo"})
    assert result["isError"] is True
    assert "no map that this gateway accepts" in result["content"][0]["text"]
    assert metrics.get_shim_metrics()["rejected"] == {"map": 1}


async def test_the_first_model_of_a_manifest_that_is_accepted_counts(bolt_on, proxy_of):
    async with serving(says(SAID)) as server:
        proxy = proxy_of(bolt_on(manifest(hashes=(OTHER_HASH, HASH)), endpoint=server.endpoint), maps=ACCEPTED)
        async with proxy:
            (status,) = proxy.statuses()
            await proxy.call("bolt__tell", {"place": "Oslo"})
    assert server.calls[0].model_id == "org/1"
    assert [(each.tool, each.mode, each.model, each.reason) for each in status.bolt_ons] == [
        ("tell", "ids", "org/1", None)
    ]


async def test_a_required_match_that_is_missed_is_not_offered_until_the_map_comes(bolt_on, proxy_of, until, metrics):
    async with serving(says(SAID)) as server:
        served = bolt_on(manifest(), endpoint=server.endpoint, require_match=True)
        async with proxy_of(served, metrics=metrics, maps=(maps := Accepted({}))) as proxy:
            assert proxy.tools() == ()
            assert [each.mode for each in proxy.statuses()[0].bolt_ons] == ["refused"]
            with pytest.raises(UnknownTool):
                await proxy.call("bolt__tell", {"place": "Oslo"})
            accept(proxy, maps, ACCEPTED.by_hash)
            await until(proxy, lambda: len(proxy.tools()) == 1)
            assert (await proxy.call("bolt__tell", {"place": "Oslo"})).get("isError") is not True
            # A call that comes before the clients' lists are new.
            accept(proxy, maps, {})
            refused = await proxy.call("bolt__tell", {"place": "Oslo"})
    assert refused["isError"] is True
    assert "require_match" in refused["content"][0]["text"]
    assert len(server.calls) == 1
    assert form(metrics, "refused") == 1


@pytest.mark.parametrize("reason", ["special", "range"])
@pytest.mark.parametrize("written", [None, hint()])
async def test_ids_that_no_text_may_have_are_refused_whoever_asked(bolt_on, proxy_of, metrics, reason, written):
    bad = TINY.special_tokens["<|im_end|>"] if reason == "special" else 4_000_000
    async with serving(lambda call: CodecToolResult.tokens(call.call_id, (1, bad))) as server:
        proxy = proxy_of(bolt_on(manifest(), endpoint=server.endpoint), metrics=metrics, maps=ACCEPTED)
        async with proxy:
            result = await proxy.call("bolt__tell", {"place": "Oslo"}, written=written)
    assert result["isError"] is True
    assert str(bad) in result["content"][0]["text"]
    assert metrics.get_shim_metrics()["rejected"] == {reason: 1}


async def test_an_error_of_the_tool_is_an_error_result_in_its_words(bolt_on, proxy_of):
    async with serving(lambda call: CodecToolResult.failed(call.call_id, "no such place", "E_BAD_ARG")) as server:
        proxy = proxy_of(bolt_on(manifest(), endpoint=server.endpoint))
        async with proxy:
            result = await proxy.call("bolt__tell", {"place": "Oslo"})
    assert result["isError"] is True
    assert result["content"][0]["text"] == "no such place (E_BAD_ARG)"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (http(b"\xc1"), "its answer can't be read"),
        (http(b"<html>", kind=b"text/html"), "text/html"),
        (http(b"busy", status=b"503 Service Unavailable", kind=b"text/plain"), "503 Service Unavailable: busy"),
        (http(b"x" * 2049, status=b"503 Service Unavailable", kind=b"text/plain"), "503 Service Unavailable"),
        (http(CodecToolResult.said("another", "x").to_bytes()), "'another'"),
        (http(CodecToolResult.said(1, "x" * 70_000).to_bytes()), "over the limit"),
        (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", "302"),
        (b"\x00\x01\x02\r\n\r\n", "not valid HTTP"),
    ],
)
async def test_an_answer_that_is_none_is_an_error_result_that_names_the_server(bolt_on, proxy_of, answer, words):
    async with serving(lambda call: answer) as server:
        proxy = proxy_of(bolt_on(manifest(), endpoint=server.endpoint), result_bytes=60_000)
        async with proxy:
            result = await proxy.call("bolt__tell", {"place": "Oslo"})
    assert result["isError"] is True
    assert "server 'bolt'" in result["content"][0]["text"]
    assert words in result["content"][0]["text"]


async def test_an_answer_that_does_not_come_ends_the_call_in_its_time(bolt_on, proxy_of):
    async def never(call):
        await anyio.sleep_forever()
        return b""

    async with serving(never) as server:
        proxy = proxy_of(bolt_on(manifest(), endpoint=server.endpoint, timeout=0.2))
        async with proxy:
            result = await proxy.call("bolt__tell", {"place": "Oslo"})
    assert "within 0.2 s" in result["content"][0]["text"]


async def test_a_bolt_on_may_answer_on_a_unix_socket_that_its_manifest_names(bolt_on, proxy_of, tmp_path):
    async with serving(says(SAID), path=tmp_path / "tool.sock") as server:
        proxy = proxy_of(bolt_on(manifest(endpoint=server.endpoint)), maps=ACCEPTED)
        async with proxy:
            result = await proxy.call("bolt__tell", {"place": "Oslo"})
    assert result["content"][0]["text"] == SAID


async def test_the_engines_dialect_gets_the_arguments_as_text_and_gives_ids(bolt_on, proxy_of):
    async with serving(says(SAID)) as server:
        fields = {"name": "tell", "endpoint": server.endpoint, "tokenizerHash": HASH}
        async with proxy_of(bolt_on(fields), maps=(maps := Accepted(ACCEPTED.by_hash))) as proxy:
            result = await proxy.call("bolt__tell", {"place": "Oslo"}, written=hint())
            accept(proxy, maps, {})
            missed = await proxy.call("bolt__tell", {"place": "Oslo"})
    (call,) = server.calls
    assert (call.dialect, call.arguments_json, call.tokenizer_hash) == ("engine", '{"place": "Oslo"}', HASH)
    assert result["content"][0].ids == tuple(TINY.encode(SAID))
    assert "answers only with ids" in missed["content"][0]["text"]


async def test_credentials_go_only_to_the_place_that_the_configuration_names(bolt_on, proxy_of):
    async with serving(says(SAID)) as named, serving(says(SAID)) as other:
        ours = bolt_on(manifest(), name="ours", endpoint=named.endpoint, headers={"Authorization": "Bearer s"})
        theirs = bolt_on(manifest(endpoint=other.endpoint), name="theirs", headers={"Authorization": "Bearer s"})
        proxy = proxy_of(ours, theirs)
        async with proxy:
            for name in ("ours__tell", "theirs__tell"):
                await proxy.call(name, {"place": "Oslo"})
    assert "authorization: bearer s" in named.heads[0]
    assert "authorization" not in other.heads[0]
    assert f"content-type: {MEDIA_TYPE.decode()}" in named.heads[0]


async def test_a_bolt_on_that_is_away_is_waited_for_and_one_that_went_and_came_back_is_called_again(
    bolt_on, proxy_of, until, soon
):
    async with serving(says(SAID)) as before:
        port = int(before.endpoint.rpartition(":")[2])
    async with proxy_of(bolt_on(manifest(), endpoint=before.endpoint), maps=ACCEPTED) as proxy:
        assert "can't connect" in (proxy.statuses()[0].last_error or "")
        for _ in range(2):
            async with serving(says(SAID), port=port) as server:
                await until(proxy, lambda: proxy.statuses()[0].state == "up")
                result = await proxy.call("bolt__tell", {"place": "Oslo"})
                assert result["content"][0]["text"] == SAID
                assert len(server.calls) == 1
            away = await proxy.call("bolt__tell", {"place": "Oslo"})
            assert "server 'bolt'" in away["content"][0]["text"]
            await soon(lambda: proxy.statuses()[0].state != "up")


async def test_a_server_that_is_no_bolt_on_never_sees_the_ids_that_a_model_wrote(proxy_of):
    script = Path(__file__).parents[3] / "e2e" / "servers" / "echoes_meta.py"
    config = UpstreamConfig(name="up", command=sys.executable, args=(str(script),))
    async with proxy_of(config) as proxy:
        result = await proxy.call("up__say", {}, meta={"kept": 1}, written=hint())
    assert json.loads(result["content"][0]["text"]) == {"kept": 1}


@pytest.mark.parametrize("reads_ids", [True, False])
def test_no_special_token_of_a_real_model_passes_in_an_answer(model_map, metrics, reads_ids):
    call = CodecToolCall("tell", 1, argument_ids=(), model_id="org/0")
    outgoing = Outgoing(call, "raw", model_map, reads_ids)
    for special in sorted(model_map.special_ids):
        for ids in ((special,), (*model_map.encode("It rains"), special), (special, *model_map.encode("."))):
            with pytest.raises(Unfit, match=str(special)):
                read_answer(outgoing, CodecToolResult.tokens(1, ids).to_bytes(), metrics)
        said = read_answer(outgoing, CodecToolResult.said(1, model_map.decode([special])).to_bytes(), metrics)
        assert model_map.special_ids.isdisjoint(model_map.encode(said["content"][0]["text"]))
    assert metrics.get_shim_metrics()["rejected"] == {"special": 3 * len(model_map.special_ids)}


def test_time_that_it_takes_to_make_ids_is_counted_with_them(monkeypatch):
    class Counts:
        def __init__(self):
            self.made = []

        def shim_tokenized(self, map_id, *, ids, seconds):
            self.made.append((map_id, ids, seconds))

    times = iter((5.0, 7.0))
    monkeypatch.setattr("gateway.proxy.bolt_on.bolt_on_tools.perf_counter", lambda: next(times))
    described = parse_manifest(json.dumps(manifest()).encode(), source="x")
    params = {"name": "tell", "arguments": {"place": "Oslo"}}
    outgoing = write_call(described, match(described, ACCEPTED), params, None, 3, counts := Counts())

    assert (outgoing.form, outgoing.call.call_id, outgoing.call.argument_ids) == ("encoded", 3, WROTE)
    assert counts.made == [(TINY.map_id, len(WROTE), 2.0)]
