"""The check-up of several engines: each is asked, and what is wrong with one is said with its name."""

from pathlib import Path

import pytest

from gateway.cli.checkup import check_up
from gateway.config import EngineConfig, GatewayConfig

pytestmark = [pytest.mark.anyio, pytest.mark.engine]


async def test_each_engine_is_asked_and_what_is_wrong_has_its_name(
    engine_url: str, tmp_path: Path, model_map_bytes: bytes
) -> None:
    path = tmp_path / "map.json"
    path.write_bytes(model_map_bytes)
    engines = {
        "desk": EngineConfig(kind="url", url=engine_url, model=path),
        "lost": EngineConfig(kind="url", url="http://127.0.0.1:9", model=path),
    }

    found = await check_up(GatewayConfig(engines=engines))

    assert found.engine.startswith("desk: ")
    assert found.engine.endswith("lost: down")
    (problem,) = found.problems
    assert problem.startswith("engine 'lost': nothing listens at 'http://127.0.0.1:9'")
    assert len(found.maps) == 1
    assert not found.is_well
