"""Two gateways with one store: what they hold together, and that nobody notices when it is gone."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import openai
import pytest

from tests.e2e.conftest import RunningGateway, key_for
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

    def when_up(self) -> "Together":
        """Wait until both have heard of the store for the first time."""
        for each in self.gateways:
            each.log.wait_for("the shared store answers")
        return self

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
        env = {"SHARED__URL": store.url, "SHARED__TIMEOUT": "5"}
        gateways = [started(stack, each, secret, env=env) for each in folders]
        yield Together(store, gateways, folders).when_up()


async def ping(http: httpx2.AsyncClient, url: str, session: str | None = None) -> int:
    return (await post(http, url, "ping", {}, session)).status_code


def client(key: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=240)


async def test_rate_of_a_key_is_one_for_both_and_a_request_that_is_sent_on_counts_once(together: Together) -> None:
    one, other = together.urls
    began = time.monotonic()
    async with client(together.key("ann")) as http:
        session = await initialized(http, one)
        # One of two is sent on to the owner.
        answers = [await ping(http, url, session) for url in (other, one, other, other, other, one, other, one)]
    came_back = (time.monotonic() - began) * RATE / 60

    assert answers[: RATE - 1] == [200] * (RATE - 1)
    assert answers[RATE - 1 :].count(200) <= came_back
    assert set(answers) <= {200, 429}


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
    began = time.monotonic()
    async with client(together.key("cleo")) as http:
        after = [await ping(http, url) for url in together.urls * 4]
    came_back = (time.monotonic() - began) * RATE / 60

    assert set(before) <= {400, 200}
    assert away == [False, False]
    # Each replica has its share of the rate, less what it had let through before.
    assert during[: RATE - 2].count(429) == 0
    assert set(during) == {before[0], 429}
    assert after[:RATE] == [before[0]] * RATE
    assert after[RATE:].count(before[0]) <= came_back


@contextmanager
def two_of(folder: Path, engine: str, **more: str) -> Iterator[Together]:
    """Two gateways that a test may kill. `more`: settings."""
    secret = folder / "key"
    secret.write_text("0123456789abcdef" * 4)
    folders = [folder / name for name in ("one", "other")]
    with running_store() as store, ExitStack() as stack:
        env = {"SHARED__URL": store.url, "SHARED__TIMEOUT": "5", **more}
        gateways = [started(stack, each, secret, engine, env=env) for each in folders]
        yield Together(store, gateways, folders).when_up()


@pytest.fixture
def generating(tmp_path: Path, engine_url: str) -> Iterator[Together]:
    """Two that generate with one engine."""
    with two_of(tmp_path, engine_url) as two:
        yield two


async def event_of(stream: httpx2.Response) -> tuple[str, dict[str, Any]]:
    """The next event with data: its id, and what it holds."""
    event_id = ""
    async for line in stream.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            event_id = value
        elif name == "data" and value:
            return event_id, json.loads(value)
    raise AssertionError("the stream ended")


async def test_answer_is_had_from_another_replica_when_the_one_that_made_it_was_killed(tmp_path: Path) -> None:
    events = {"accept": "application/json, text/event-stream"}
    greeting = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "t", "version": "1"},
    }
    asking = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ask", "arguments": {"about": "x"}}}
    with two_of(tmp_path, "none", SERVE__SSE_CLOSE_AFTER="0.05") as two:
        (owner, other), metric = two.urls, "codec_shared_operations_total"
        async with httpx2.AsyncClient(timeout=240, headers=events) as http:
            session = (await post(http, owner, "initialize", greeting)).headers["mcp-session-id"]
            named = {"mcp-session-id": session}
            async with http.stream("GET", f"{owner}/mcp", headers=named) as listening:
                # It is closed at once, for its client to come back.
                begun = await http.post(f"{owner}/mcp", json=asking, headers=named)
                _, question = await event_of(listening)
            written = two.gateways[0].metric(metric, kind="event", result="ok")
            yes = {"action": "accept", "content": {"text": "yes"}}
            await http.post(f"{owner}/mcp", json={"jsonrpc": "2.0", "id": question["id"], "result": yes}, headers=named)
            with anyio.fail_after(30):
                while two.gateways[0].metric(metric, kind="event", result="ok") == written:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            two.gateways[0].process.kill()
            two.gateways[0].process.wait()

            resuming = {**named, "last-event-id": "1-0"}
            async with http.stream("GET", f"{other}/mcp", headers=resuming) as stream:
                _, answer = await event_of(stream)
            again = await http.get(f"{other}/mcp", headers={**named, "last-event-id": "1-99"})

    assert "id: 1-0" in begun.text
    assert (answer["id"], answer["result"]["content"][0]["text"]) == (2, "yes")
    assert again.status_code == 404


def api_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0, timeout=240)


@pytest.mark.engine
def test_chat_goes_on_at_any_replica_with_the_ids_that_it_was_lived_with(generating: Together) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Tell me about the sea, please."}]
    told: list[dict[str, Any]] = []
    for number in range(10):
        with api_of(generating.urls[number % 2]) as api:
            about: Any = {"model": "any", "messages": messages, "max_tokens": 12, "temperature": 0.9, "seed": number}
            answer = api.chat.completions.create(**about)
        told.append(answer.model_dump()["codec"].get("prompt"))
        messages += [answer.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": "And then?"}]

    assert told[0] is None
    # All that was held is the beginning of the next prompt; whether the engine still has it is another matter.
    assert {each["reason"] for each in told[1:]} <= {None, "replica_moved"}, told
    assert [each["held"] for each in told[1:]] == sorted(each["held"] for each in told[1:])
    assert told[1]["held"] > 0


@pytest.mark.engine
def test_stored_responses_outlive_the_replica_that_made_them(generating: Together) -> None:
    about: dict[str, Any] = {"model": "any", "max_output_tokens": 4}
    with api_of(generating.urls[0]) as owner:
        first = owner.responses.create(input="Hello.", **about)
        second = owner.responses.create(input="And?", previous_response_id=first.id, **about)
    generating.gateways[0].process.kill()
    generating.gateways[0].process.wait()
    with api_of(generating.urls[1]) as other:
        third = other.responses.create(input="Then?", previous_response_id=second.id, **about)
        fourth = other.responses.create(input="Last?", previous_response_id=third.id, **about)
        reference: Any = [{"type": "item_reference", "id": second.output[0].id}, {"role": "user", "content": "Hm?"}]
        referring = other.responses.create(input=reference, **about)
        told = other.responses.retrieve(second.id)
        items = other.responses.input_items.list(second.id)
        other.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError, match="there is no stored response"):
            other.responses.retrieve(first.id)
        with pytest.raises(openai.NotFoundError, match="there is no stored response"):
            other.responses.create(input="More?", previous_response_id=fourth.id, **about)

    assert told.output == second.output
    assert [each["content"][0]["text"] for each in items.model_dump()["data"]] == ["And?"]
    assert referring.status in ("completed", "incomplete")
    prompts = [each.model_dump()["codec"]["prompt"] for each in (third, fourth)]
    assert all(each["held"] > 0 for each in prompts), prompts


@pytest.mark.engine
def test_store_that_is_killed_costs_no_conversation(generating: Together) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Tell me about the hills, please."}]
    about: dict[str, Any] = {"model": "any", "max_tokens": 6}
    for number in range(6):
        if number == 2:
            generating.store.kill()
        if number == 4:
            generating.store.start()
        with api_of(generating.urls[number % 2]) as api:
            answer = api.chat.completions.create(messages=messages, **about)  # pyright: ignore[reportArgumentType]
            stored = api.responses.create(input="Hello.", model="any", max_output_tokens=3)
            assert api.responses.retrieve(stored.id).id == stored.id
        messages += [answer.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": "And then?"}]

    assert len(messages) == 13
