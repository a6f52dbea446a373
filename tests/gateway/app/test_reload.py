"""Configuration files are followed while the gateway runs, and a wrong one changes nothing."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from gateway.app import reload as reload_module
from gateway.app.reload import Reloader, state_of
from gateway.config.gateway_config import GatewayConfig, LimitsConfig, ServeConfig, UpstreamConfig
from gateway.errors import ConfigError

pytestmark = pytest.mark.anyio
ECHO = UpstreamConfig(name="echo", command="echo")


class Follower:
    """A reloader that follows, what it read and what it took over."""

    def __init__(self, config: GatewayConfig, besides: Sequence[Path] = ()) -> None:
        self.fresh: GatewayConfig | ConfigError = config
        self.taken: list[GatewayConfig] = []
        self.told: list[Path] = []
        self.reads = 0
        self._besides = besides
        self._looks = 0
        self._happened = anyio.Event()
        self.reloader = Reloader(config, self._read)

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[None]:
        async def take(config: GatewayConfig) -> None:
            self.taken.append(config)
            self._note()

        with TemporaryDirectory() as folder:
            self._mark = Path(folder) / "mark"
            besides = {path: partial(self._tell, path) for path in self._besides} | {self._mark: self._looked}
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.reloader.follow, take, besides)
                await anyio.wait_all_tasks_blocked()
                yield
                tasks.cancel_scope.cancel()

    async def ask(self, fresh: GatewayConfig | ConfigError) -> None:
        """Read this, and be through with it."""
        self.fresh = fresh
        before = self._looks
        # Files of others are looked at last, when all else is done.
        if self._mark.exists():
            self._mark.unlink()
        else:
            self._mark.touch()
        self.reloader.ask()
        await self.until(lambda: self._looks > before)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until what it has taken over or told makes this true."""
        with anyio.fail_after(20):
            while not condition():
                await self._happened.wait()

    def _note(self) -> None:
        self._happened.set()
        self._happened = anyio.Event()

    def _tell(self, path: Path) -> None:
        self.told.append(path)
        self._note()

    def _looked(self) -> None:
        self._looks += 1
        self._note()

    def _read(self) -> GatewayConfig:
        self.reads += 1
        if isinstance(self.fresh, ConfigError):
            raise self.fresh
        return self.fresh


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "codec-gateway.toml"
    made.write_text("")
    return made


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload_module, "_EVERY", 0.01)


async def test_each_change_of_a_file_is_taken_over_once(file):
    config = GatewayConfig(files=(file,))
    follower = Follower(config)
    async with follower.following():
        follower.fresh = replace(config, upstreams=(ECHO,))
        file.write_text("changed")
        await follower.until(lambda: len(follower.taken) == 1)
        follower.fresh = config
        file.write_text("changed again")
        await follower.until(lambda: len(follower.taken) == 2)

    assert [each.upstreams for each in follower.taken] == [(ECHO,), ()]
    assert follower.reads == 2


async def test_who_asks_has_everything_read_anew_though_no_file_changed():
    follower = Follower(GatewayConfig())
    async with follower.following():
        await follower.ask(GatewayConfig(upstreams=(ECHO,)))

    assert follower.taken == [GatewayConfig(upstreams=(ECHO,))]


async def test_who_asks_before_anybody_follows_is_not_forgotten():
    follower = Follower(GatewayConfig())
    follower.fresh = GatewayConfig(upstreams=(ECHO,))
    follower.reloader.ask()
    async with follower.following():
        await follower.until(lambda: follower.taken)

    assert follower.reads == 1


async def test_wrong_configuration_changes_nothing_and_the_log_says_what_is_wrong(caplog):
    follower = Follower(GatewayConfig())
    async with follower.following():
        await follower.ask(ConfigError("upstreams.x: unknown key 'comand'; did you mean 'command'?"))
        assert follower.taken == []
        await follower.ask(GatewayConfig(upstreams=(ECHO,)))

    assert len(follower.taken) == 1
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.msg["cause"] == "upstreams.x: unknown key 'comand'; did you mean 'command'?"


async def test_what_can_not_change_in_a_running_process_is_named_and_stays(caplog):
    before = GatewayConfig(serve=ServeConfig(port=8600))
    changed = GatewayConfig(
        serve=ServeConfig(port=9000), limits=LimitsConfig(tool_timeout=1.0), upstreams=(ECHO,), prefix="never"
    )
    follower = Follower(before)
    async with follower.following():
        await follower.ask(changed)

    assert follower.taken == [replace(before, upstreams=(ECHO,), prefix="never")]
    (warned,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert sorted(warned.msg["settings"]) == ["limits", "serve"]


async def test_configuration_that_says_the_same_disturbs_nobody():
    follower = Follower(GatewayConfig(upstreams=(ECHO,)))
    async with follower.following():
        await follower.ask(GatewayConfig(upstreams=(replace(ECHO),)))

    assert (follower.reads, follower.taken) == (1, [])


async def test_warnings_of_a_file_are_logged_when_it_is_taken_over(caplog):
    follower = Follower(GatewayConfig())
    async with follower.following():
        await follower.ask(GatewayConfig(upstreams=(ECHO,), warnings=("mcp.json: unknown key 'x'",)))

    assert "mcp.json: unknown key 'x'" in [record.msg["event"] for record in caplog.records]


async def test_file_that_the_configuration_names_from_now_on_is_followed_from_now_on(file, tmp_path):
    other = tmp_path / "mcp.json"
    other.write_text("{}")
    config = GatewayConfig(files=(file,))
    named = replace(config, files=(file, other), upstreams=(ECHO,))
    follower = Follower(config)
    async with follower.following():
        await follower.ask(named)
        follower.fresh = replace(named, upstreams=())
        other.write_text('{"mcpServers": {}}')
        await follower.until(lambda: len(follower.taken) == 2)

    assert [each.upstreams for each in follower.taken] == [(ECHO,), ()]


async def test_file_that_others_keep_is_told_to_them_and_reads_no_configuration(tmp_path):
    keys = tmp_path / "keys.toml"
    follower = Follower(GatewayConfig(), [keys])
    async with follower.following():
        keys.write_text("made")
        await follower.until(lambda: len(follower.told) == 1)
        keys.unlink()
        await follower.until(lambda: len(follower.told) == 2)

    assert follower.reads == 0


def test_state_tells_a_replaced_file_of_the_same_size_and_one_that_is_gone(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("a")
    other.write_text("b")
    before = state_of([one])
    os.utime(other, ns=(0, one.stat().st_mtime_ns))
    other.replace(one)

    assert state_of([one]) != before
    assert state_of([tmp_path / "none"]) == (None,)
