"""Streams through the whole path arrive whole, and the stub that plays the engine speaks as the engine does."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bench.path import __main__ as bench_path
from bench.path import crowd, single
from bench.path.client import Got, fetch
from bench.path.stand import Engine, gateway_over, stub_engine
from bench.path.stub_events import ids_of, message_event, rendered
from bench.path.table import sections
from bench.path.ways import ENGINE, JSON, MSGPACK, PROTOBUF, PROTOBUF_BATCH, PROTOBUF_ZSTD, WAYS
from bench.processes import Gateway
from leaf_sdk import TokenMap

pytestmark = pytest.mark.anyio
RESULTS = Path(__file__).parents[1] / "bench" / "results" / "path.json"


@pytest.fixture(scope="module")
def stub() -> Iterator[Engine]:
    with stub_engine() as engine:
        yield engine


@pytest.fixture(scope="module")
def gateway(stub: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway_over(stub, tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


async def test_streams_side_by_side_lose_nothing_and_each_gets_its_own(stub: Engine, gateway: Gateway) -> None:
    row = await crowd.crowd(stub, gateway, 3, 60, resident=0)
    # The run itself ends where an id is missing or another one; here, that it counted all of them.
    assert 3 * 60 <= row["tokens"] <= 3 * 64
    assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert set(row["cores"]) == {"gateway", "stub", "client"}
    assert row["kib_per_stream"] > 1024


@pytest.mark.parametrize("way", [PROTOBUF, MSGPACK, PROTOBUF_ZSTD, PROTOBUF_BATCH], ids=lambda way: way.name)
async def test_every_way_of_frames_brings_the_ids_that_the_stub_replays(gateway: Gateway, way: Any) -> None:
    got = await fetch(gateway.url, way, way.request([5, 1000], 200))
    assert got.ids == list(ids_of(5)[: len(got.ids)])
    assert len(got.ids) == len(got.times) >= 200
    assert got.wire_bytes < 200 * 8
    assert got.asked < got.times[0] <= got.times[-1]


async def test_json_of_stub_and_gateway_say_the_text_of_the_same_ids(
    stub: Engine, gateway: Gateway, model_map: TokenMap
) -> None:
    direct = await fetch(stub.url, ENGINE, ENGINE.request([2, 1000], 100))
    through = await fetch(gateway.url, JSON, JSON.request([2, 1000], 100))
    text = model_map.decode(ids_of(2)[:100])
    assert direct.text == text
    assert through.text.startswith(text)
    assert len(direct.times) == 100


def test_a_run_ends_where_an_id_is_missing_or_another_one() -> None:
    ids = list(ids_of(3)[:20])
    single.check(Got(ids=ids), PROTOBUF, 3, 20)
    for wrong in (ids[:-1], [*ids[:-1], ids[-1] + 1], list(ids_of(4)[:20])):
        with pytest.raises(SystemExit, match="ids came"):
            single.check(Got(ids=wrong), PROTOBUF, 3, 20)


def test_pieces_of_the_stub_hold_every_id_once(model_map: TokenMap) -> None:
    for openai in (True, False):
        assert sum(piece.ids for piece in rendered(1, model_map, openai=openai).pieces) >= 4090


@pytest.mark.engine
def test_events_of_the_stub_are_those_of_the_packaged_server(engine_url: str) -> None:
    asked = {"prompt": [1, 520], "n_predict": 8, "stream": True, "return_tokens": True, "id_slot": 0, "temperature": 0}
    answer = httpx2.post(f"{engine_url}/completion", json=asked, timeout=60)
    events = [event + b"\n\n" for event in answer.content.split(b"\n\n") if event]
    compared = 0
    for event in events[:-1]:
        said = json.loads(event[6:])
        assert event == message_event(said["tokens"][0], said["content"], said["tokens_predicted"])
        compared += 1
    last = json.loads(events[-1][6:])
    assert compared >= 3
    assert (last["stop"], last["tokens_predicted"]) == (True, 8)


def test_committed_results_name_every_way_and_fill_every_section() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert list(results["real"]) == [way.name for way in WAYS]
    assert sorted({row["streams"] for row in results["crowd"]}) == list(crowd.COUNTS)
    assert list(results["us_per_token"]) == [str(rate) for rate in single.COUNTS]
    assert sum(line.startswith("### ") for line in sections(results)) == 5


def test_a_part_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(SystemExit, match="no part is called"):
        bench_path.main(["crwod"])
