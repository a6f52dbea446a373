"""Two gateways with one store: what they hold together, and that nobody notices when it is gone."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from tests.e2e.conftest import RunningGateway
from tests.e2e.test_access import key_for
from tests.e2e.test_replicas import initialized, post, started
from tests.standins.stores import Store, running_store

pytestmark = pytest.mark.anyio

RATE = 6


class Together:
    """Two gateways, their store, and the keys that both know."""

    def __init__(self, store: Store, gateways: list[RunningGateway], folders: list[Path]) -> None:
        self.store = store
        self.gateways = gateways
        self.urls = [each.url for each in gateways]
        self._folders = folders

    def key(self, name: str) -> str:
        """A key of six requests a minute, at both."""
        key = key_for(self._folders[0], name, "--rate", str(RATE))
        shutil.copy(self._folders[0] / "keys.toml", self._folders[1] / "keys.toml")
        return key

    def up(self) -> list[bool]:
        return [httpx2.get(f"{each.admin}/status").json()["shared"]["up"] for each in self.gateways]


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    folder = tmp_path_factory.mktemp("together")
    secret = folder / "key"
    secret.write_text("0123456789abcdef" * 4)
    folders = [folder / name for name in ("one", "other")]
    folders[0].mkdir()
    key_for(folders[0], "first")
    shutil.copytree(folders[0], folders[1])
    with running_store() as store, ExitStack() as stack:
        env = {"SHARED__URL": store.url, "SHARED__TIMEOUT": "1"}
        yield Together(store, [started(stack, each, secret, env=env) for each in folders], folders)


async def ping(http: httpx2.AsyncClient, url: str, session: str | None = None) -> int:
    return (await post(http, url, "ping", {}, session)).status_code


def client(key: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=30)


async def test_rate_of_a_key_is_one_for_both_and_a_request_that_is_sent_on_counts_once(together: Together) -> None:
    one, other = together.urls
    async with client(together.key("ann")) as http:
        session = await initialized(http, one)
        # One of two is sent on to the owner.
        answers = [await ping(http, url, session) for url in (other, one, other, other, other, one, other)]

    assert answers == [200] * (RATE - 1) + [429] * 2


async def test_status_and_metrics_say_how_the_store_stands(together: Together) -> None:
    # The one that was started last has counted both.
    report = httpx2.get(f"{together.gateways[1].admin}/status").json()["shared"]

    assert report == {"up": True, "reason": None, "replicas": 2}
    assert together.gateways[0].metric("codec_shared_up") == 1
    assert together.gateways[0].metric("codec_shared_operations_total", kind="limit", result="ok") >= 1


async def test_store_that_is_killed_and_started_again_costs_no_client_an_error(together: Together) -> None:
    async with client(together.key("bob")) as http:
        before = [await ping(http, url) for url in together.urls]
        together.store.kill()
        during = [await ping(http, url) for url in together.urls * 10]
        away = together.up()
        together.store.start()
        while not all(together.up()):
            during += [await ping(http, url) for url in together.urls]
    async with client(together.key("cleo")) as http:
        after = [await ping(http, url) for url in together.urls * 4]

    assert set(before) <= {400, 200}
    assert away == [False, False]
    # Each replica has its share of the rate, less what it had let through before.
    assert during[: RATE - 2].count(429) == 0
    assert set(during) == {before[0], 429}
    assert after == [before[0]] * RATE + [429] * 2
