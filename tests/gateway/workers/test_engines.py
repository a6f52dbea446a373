"""How workers share out the slots of an embedded engine that their parent runs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.model import EngineConfig, GatewayConfig
from gateway.config.replicas import WorkerConfig
from gateway.errors import ConfigError
from gateway.workers.embedded_engines import check_engines, running_engines, share_of, with_hosted_engines

EMBEDDED = EngineConfig(kind="embedded", slots=5, isolate=True, context=4096)


def worker(number: int, count: int = 2, folder: Path = Path("/nowhere")) -> WorkerConfig:
    return WorkerConfig(number, count, folder, ())


@given(st.integers(1, 200), st.integers(0, 300))
def test_every_slot_is_exactly_one_workers_and_no_worker_has_two_more_than_another(count, more):
    slots = count + more
    shares = [EngineConfig(own_slots=share_of(slots, worker(number, count))).slot_range for number in range(count)]

    assert [slot for share in shares for slot in share] == list(range(slots))
    assert {len(share) for share in shares} <= {slots // count, slots // count + 1}


def test_worker_takes_the_embedded_engine_for_a_server_of_which_slots_are_its_own(tmp_path):
    (tmp_path / "engines.json").write_text(json.dumps({"engine": {"url": "http://127.0.0.1:7", "key": "secret"}}))
    seen = with_hosted_engines(GatewayConfig(engine=EMBEDDED), worker(1, folder=tmp_path)).engine

    assert (seen.kind, seen.url, seen.api_key, seen.own_slots) == ("url", "http://127.0.0.1:7", "secret", "2-4")
    assert (seen.isolate, seen.context) == (True, 4096)


def test_engines_of_a_pool_are_hosted_each_by_its_name_and_servers_at_a_url_stay_as_they_are(tmp_path):
    (tmp_path / "engines.json").write_text(json.dumps({"mine": {"url": "http://127.0.0.1:7", "key": "k"}}))
    there = EngineConfig(kind="url", url="http://there")
    config = GatewayConfig(engines={"mine": EMBEDDED, "there": there})
    seen = with_hosted_engines(config, worker(0, folder=tmp_path)).members

    assert (seen["mine"].url, seen["there"]) == ("http://127.0.0.1:7", there)


def test_engine_that_the_parent_does_not_run_is_told(tmp_path):
    (tmp_path / "engines.json").write_text("{}")

    with pytest.raises(ConfigError, match="restart the gateway"):
        with_hosted_engines(GatewayConfig(engine=EMBEDDED), worker(0, folder=tmp_path))


def test_settings_without_an_embedded_engine_are_left_as_they_are():
    for engine in (EngineConfig(), EngineConfig(kind="url", url="http://there")):
        config = GatewayConfig(engine=engine)
        assert with_hosted_engines(config, worker(0)) is config


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (EMBEDDED, "5 slots, and each of 6 workers needs a slot of its own: set its 'slots' to 6 or more"),
        (replace(EMBEDDED, slots=6, slot_files="/kept"), "remove 'slot_files', or set serve.workers to 1"),
        (EngineConfig(kind="url", url="http://there", exclusive=True), "remove 'exclusive', or set serve.workers to 1"),
    ],
)
def test_engine_that_workers_can_not_share_is_refused_with_the_way_out(engine, words):
    with pytest.raises(ConfigError, match=words):
        check_engines(GatewayConfig(engine=engine), 6)


def test_engine_with_a_slot_for_each_worker_is_shared():
    check_engines(GatewayConfig(engine=EMBEDDED), 5)


@pytest.mark.anyio
async def test_engine_that_can_not_start_yet_keeps_no_worker_from_starting_and_has_its_place(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_text("no model")
    config = GatewayConfig(engine=replace(EMBEDDED, model=broken))
    with anyio.fail_after(60):
        async with running_engines(config, tmp_path):
            seen = with_hosted_engines(config, worker(0, folder=tmp_path)).engine

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", seen.url)
    assert (tmp_path / "engines.json").stat().st_mode & 0o777 == 0o600
