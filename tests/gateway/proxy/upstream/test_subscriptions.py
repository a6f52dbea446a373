"""What one server is asked to tell of its lists and resources, in either era, while clients come and go."""

from types import SimpleNamespace

import anyio
import pytest

from gateway.proxy.transport.transport_interface import PeerError
from gateway.proxy.upstream.supervision.maintenance import Follower

pytestmark = pytest.mark.anyio


class Server:
    """A session that writes down what it is asked."""

    def __init__(self, *, modern: bool, refuses: str = "", **capabilities: dict[str, object]) -> None:
        self.modern = modern
        self.capabilities = capabilities
        self.asked: list[object] = []
        self.listening = 0
        self._refuses = refuses

    async def request(self, method: str, params: dict[str, object]) -> dict[str, object]:
        if method == "subscriptions/listen":
            self.asked.append(params["notifications"])
            self.listening += 1
            try:
                await anyio.sleep_forever()
            finally:
                self.listening -= 1
        self.asked.append((method.partition("/")[2], params["uri"]))
        if params["uri"] == self._refuses:
            raise PeerError({"code": -32602, "message": "no such resource"})
        return {}


async def follow(server, follower, *steps):
    """What the server is asked at first and behind each step."""
    heard = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follower.follow, SimpleNamespace(session=server))
        for step in (lambda: None, *steps):
            step()
            await anyio.wait_all_tasks_blocked()
            heard.append(server.asked)
            server.asked = []
        tasks.cancel_scope.cancel()
    return heard


async def test_resource_is_subscribed_to_once_however_many_watch_it_and_until_the_last_one_leaves():
    follower, server = Follower("up"), Server(modern=False)
    want, drop = lambda: follower.want("x:1"), lambda: follower.drop("x:1")

    heard = await follow(server, follower, want, want, drop, drop, want)

    subscribed, unsubscribed = [("subscribe", "x:1")], [("unsubscribe", "x:1")]
    assert heard == [[], subscribed, [], [], unsubscribed, subscribed]
    assert follower.watches
    follower.drop("x:1")
    assert not follower.watches


async def test_new_session_is_subscribed_to_all_that_is_watched():
    follower = Follower("up")
    follower.want("x:2")
    follower.want("x:1")

    for _ in range(2):
        assert await follow(Server(modern=False), follower) == [[("subscribe", "x:1"), ("subscribe", "x:2")]]


async def test_resource_that_the_server_refuses_holds_up_no_other():
    follower = Follower("up")
    for uri in ("x:1", "x:2"):
        follower.want(uri)

    heard = await follow(Server(modern=False, refuses="x:1"), follower)

    assert heard == [[("subscribe", "x:1"), ("subscribe", "x:2")]]


async def test_watcher_waits_until_its_resource_is_subscribed_to_and_not_without_a_session(monkeypatch):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance._SETTLING", 3600)
    follower, settled = Follower("up"), anyio.Event()
    follower.want("x:1")
    await follower.settled("x:1")

    async def wait():
        await follower.settled("x:2")
        settled.set()

    async def refuse(*_):
        await answered.wait()

    answered, server = anyio.Event(), Server(modern=False)
    server.request = refuse
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follower.follow, SimpleNamespace(session=server))
        follower.want("x:2")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert not settled.is_set()
        answered.set()
        with anyio.fail_after(30):
            await settled.wait()
        tasks.cancel_scope.cancel()


async def test_server_of_the_modern_era_is_listened_to_for_what_it_tells_and_what_is_watched():
    follower = Follower("up")
    server = Server(
        modern=True, tools={"listChanged": True}, prompts={"listChanged": False}, resources={"subscribe": True}
    )

    heard = await follow(
        server, follower, lambda: follower.want("x:2"), lambda: follower.want("x:1"), lambda: follower.drop("x:2")
    )

    assert heard == [
        [{"toolsListChanged": True}],
        [{"toolsListChanged": True, "resourceSubscriptions": ["x:2"]}],
        [{"toolsListChanged": True, "resourceSubscriptions": ["x:1", "x:2"]}],
        [{"toolsListChanged": True, "resourceSubscriptions": ["x:1"]}],
    ]
    assert server.listening == 0


async def test_server_of_the_modern_era_that_tells_nothing_is_listened_to_once_something_is_watched():
    follower, server = Follower("up"), Server(modern=True)

    heard = await follow(server, follower, lambda: follower.want("x:1"), lambda: follower.drop("x:1"))

    assert heard == [[], [{"resourceSubscriptions": ["x:1"]}], []]


async def test_server_that_ends_its_stream_is_asked_again_at_once_only_for_what_is_new(monkeypatch):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance._PAUSE", 3600.0)
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance._LONGEST_PAUSE", 3600.0)
    follower, server = Follower("up"), Server(modern=True, tools={"listChanged": True})

    async def end(_, params):
        server.asked.append(params["notifications"])
        return {}

    server.request = end

    heard = await follow(server, follower, lambda: None, lambda: follower.want("x:1"))

    assert heard == [
        [{"toolsListChanged": True}],
        [],
        [{"toolsListChanged": True, "resourceSubscriptions": ["x:1"]}],
    ]
