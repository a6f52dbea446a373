"""What a gateway opens for as long as it lives: records of calls, the shared store, other replicas, sign-ins."""

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.app import mcp_services
from gateway.app.mcp_services import open_mcp_services, open_records, open_sign_ins, open_trajectories, replicas_of
from gateway.config.access import AuditConfig
from gateway.config.gateway_config import EngineConfig, GatewayConfig, TrajectoriesConfig
from gateway.config.replicas import ReplicasConfig, SharedConfig
from gateway.engine.start.maps import MapSet
from gateway.errors import ConfigError
from gateway.observe.audit import AuditLine
from gateway.observe.metrics import Metrics
from gateway.observe.trajectories import TrajectoryAnswer
from gateway.replicas import ALONE
from gateway.replicas.connected import Connected

pytestmark = pytest.mark.anyio
AWAY = SharedConfig("redis://127.0.0.1:9/0")
THERE = EngineConfig(kind="url", url="http://there")


async def test_calls_are_recorded_where_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    async with open_records(GatewayConfig(audit=AuditConfig(path)), Metrics().access) as records:
        assert records.audit is not None
        records.audit.record(AuditLine("a", "v1", "m", "ok"))
    async with open_records(GatewayConfig(), Metrics().access) as none:
        pass

    assert json.loads(path.read_text())["principal"] == "a"
    assert (none.audit, none.tracing, records.tracing) == (None, None, None)


@pytest.mark.parametrize(
    ("models", "known"),
    [
        (["small"], True),
        (["small", "small"], True),
        (["small", "large"], False),
        (["small", None], False),
        ([None], False),
        (["gone"], False),
    ],
)
def test_trajectories_name_the_model_where_all_engines_have_the_same_file(
    tmp_path: Path, models: list[str | None], known: bool
) -> None:
    for name in ("small", "large"):
        (tmp_path / name).write_text(name)
    engines = {
        str(number): THERE if name is None else EngineConfig(kind="embedded", model=tmp_path / name)
        for number, name in enumerate(models)
    }
    config = GatewayConfig(engines=engines, trajectories=TrajectoriesConfig(tmp_path / "lines", logprobs=True))
    with open_trajectories(config, Metrics().access) as file:
        assert file is not None
        assert file.logprobs
        file.record(TrajectoryAnswer("one", None, "a", "sha256:m", "m", "stop", 0, (), (), ()))

    digest = f"sha256:{sha256(b'small').hexdigest()}" if known else None
    assert json.loads((tmp_path / "lines").read_text())["model_digest"] == digest


def test_without_a_file_there_are_no_trajectories() -> None:
    with open_trajectories(GatewayConfig(), Metrics().access) as file:
        assert file is None


def test_gateway_with_an_address_for_others_is_one_of_several(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 64)
    key.chmod(0o600)

    assert replicas_of(ReplicasConfig()) is ALONE
    assert isinstance(replicas_of(ReplicasConfig("127.0.0.1", 1, key)), Connected)
    with pytest.raises(ConfigError):
        replicas_of(ReplicasConfig("127.0.0.1", 1, tmp_path / "none"))


async def test_services_use_the_shared_store_where_there_is_one() -> None:
    with anyio.fail_after(20):
        async with open_mcp_services(GatewayConfig(), MapSet(), shared=AWAY) as services:
            assert services.shared is not None
        async with open_mcp_services(GatewayConfig(), MapSet()) as alone:
            assert alone.shared is None
            assert alone.mcp_endpoint() is not None


async def test_sign_ins_are_kept_in_the_shared_store_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(mcp_services, "GrantStore", lambda shared=None: made.append(shared))
    with anyio.fail_after(20):
        async with open_sign_ins(GatewayConfig()):
            pass
        async with open_sign_ins(GatewayConfig(shared=AWAY)):
            pass

    assert [each is None for each in made] == [True, False]


async def test_store_without_its_package_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gateway.shared.shared_store", None)

    with pytest.raises(ConfigError, match=r"codec-gateway\[shared\]"):
        async with open_sign_ins(GatewayConfig(shared=AWAY)):
            pytest.fail("it opened")
