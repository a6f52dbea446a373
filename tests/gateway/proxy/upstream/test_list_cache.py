"""What is kept of a server's lists is its own, small, private, and nothing that a damaged file could break."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config.gateway_config import UpstreamConfig
from gateway.proxy.upstream.items.item_reader import ItemReader
from gateway.proxy.upstream.server_lists import EarlierRun, ListCache, ListFile
from gateway.proxy.upstream.session.session import Session
from gateway.proxy.upstream.supervision.listing import Listing
from gateway.proxy.upstream.supervision.session_member import SessionMember

CONFIG = UpstreamConfig(
    "up", command="npx", args=("-y", "server"), env={"TOKEN": "one", "LEVEL": "1"}, headers={}, protocol="auto"
)
TOOL = {"name": "t", "description": "does \ud800 it", "inputSchema": {"type": "object"}, "n": 1.5}


class Answers:
    """A transport that lists one tool, described as the test says."""

    first_number = 0

    def __init__(self, described: str) -> None:
        self._tool = {**TOOL, "description": described}

    async def request(self, method, params, pending=None, **more):
        return {"tools": [self._tool], "_meta": {"a": 1}}


async def listed(described: str = "does it", reader: ItemReader | None = None) -> SessionMember:
    """A session whose lists are known."""
    session = Session("up", lambda _: None, on_list_changed=lambda _: None, on_updated=lambda _: None)
    answer = {"capabilities": {"tools": {}}, "serverInfo": {"name": "s"}, "instructions": "use it well"}
    session.negotiated(Answers(described), "2025-11-25", modern=False, answer=answer)
    listing = Listing(session, 10**9, reader or ItemReader("up"))
    await listing.get("tools")
    return SessionMember(session, listing)


@pytest.fixture
def cache(tmp_path: Path) -> ListCache:
    return ListCache(tmp_path / "cache" / "lists")


def files(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "lists").glob("*"))


def read(file: ListFile) -> EarlierRun | None:
    return file.read(ItemReader("up"), tuple)


@pytest.mark.anyio
async def test_what_a_server_listed_is_read_back_by_the_next_run(cache):
    cache.file_of(CONFIG).write(await listed())
    earlier = read(cache.file_of(CONFIG))

    assert earlier is not None
    assert [tool["name"] for tool in earlier.lists["tools"].items] == ["t"]
    assert earlier.lists["tools"].around == {"_meta": {"a": 1}}
    # It offers no prompts, which is known too.
    assert earlier.lists["prompts"].items == ()
    assert (earlier.modern, earlier.info, earlier.instructions) == (False, {"name": "s"}, "use it well")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({"env": {"TOKEN": "another", "LEVEL": "2"}, "timeout": 5.0, "pin": "block"}, True),
        ({"env": {"TOKEN": "one"}}, False),
        ({"args": ("-y", "other-server")}, False),
        ({"args": ("-y server",)}, False),
        ({"command": "uvx"}, False),
        ({"cwd": Path("/srv")}, False),
        ({"name": "other"}, False),
        ({"command": None, "args": (), "url": "http://h/mcp"}, False),
    ],
)
async def test_server_that_is_started_in_another_way_gets_nothing_of_it(cache, change, is_same):
    cache.file_of(CONFIG).write(await listed())

    assert (read(cache.file_of(replace(CONFIG, **change))) is not None) is is_same


@pytest.mark.anyio
async def test_two_addresses_or_headers_are_two_servers(cache):
    there = UpstreamConfig("up", url="http://a/mcp", headers={"Authorization": "one"})
    cache.file_of(there).write(await listed())

    assert read(cache.file_of(replace(there, headers={"Authorization": "two"}))) is not None
    assert read(cache.file_of(replace(there, url="http://b/mcp"))) is None
    assert read(cache.file_of(replace(there, headers={}))) is None


@pytest.mark.anyio
async def test_file_is_the_users_alone_and_holds_no_value_of_a_variable(cache, tmp_path):
    cache.file_of(CONFIG).write(await listed())

    (file,) = files(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "one" not in json.loads(file.read_text()).values()


@pytest.mark.anyio
async def test_tool_that_may_not_be_shown_now_is_not_shown_from_the_file_either(cache):
    cache.file_of(CONFIG).write(await listed())
    earlier = cache.file_of(CONFIG).read(ItemReader("up"), lambda items: ())

    assert earlier is not None
    assert earlier.lists["tools"].items == ()


@pytest.mark.anyio
async def test_lists_that_are_too_large_are_not_kept_and_leave_nothing_outdated(cache, tmp_path):
    cache.file_of(CONFIG).write(await listed())
    cache.file_of(CONFIG).write(await listed("x" * 5_000_000))

    assert files(tmp_path) == []


@pytest.mark.anyio
async def test_file_is_written_only_where_something_has_changed(cache, tmp_path):
    cache.file_of(CONFIG).write(await listed())
    (before,) = [file.stat().st_ino for file in files(tmp_path)]
    file = cache.file_of(CONFIG)
    read(file)
    file.write(await listed())
    assert [each.stat().st_ino for each in files(tmp_path)] == [before]
    file.write(await listed("does more"))

    assert [each.stat().st_ino for each in files(tmp_path)] != [before]


@pytest.mark.anyio
async def test_servers_that_were_not_used_for_longest_make_room(cache, tmp_path):
    member = await listed()
    for number in range(300):
        cache.file_of(replace(CONFIG, name=f"s{number}")).write(member)
        for age, file in enumerate(sorted(files(tmp_path), key=lambda path: -path.stat().st_mtime)[:2]):
            os.utime(file, (1000.0 + number - age, 1000.0 + number - age))

    assert len(files(tmp_path)) == 256
    assert read(cache.file_of(replace(CONFIG, name="s299"))) is not None
    assert read(cache.file_of(replace(CONFIG, name="s0"))) is None


@pytest.mark.anyio
@pytest.mark.parametrize("is_file", [True, False])
async def test_folder_that_can_not_be_written_costs_nothing_but_the_file(tmp_path, is_file):
    folder = tmp_path / "lists"
    if is_file:
        folder.write_text("")
    else:
        folder.symlink_to(tmp_path / "nowhere" / "at" / "all")
    file = ListCache(folder).file_of(CONFIG)
    file.write(await listed())

    assert read(file) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_file_is_passed_over(cache, tmp_path, data):
    told = {"modern": False, "info": {}, "instructions": None}
    whole = json.dumps({"format": 1, **told, "lists": {"tools": [[TOOL], {}]}}).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))
    spoiled = data.draw(st.sampled_from([whole[:cut], whole[:cut] + b"\xff" + whole[cut + 1 :]]))
    other = data.draw(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=4))
    key = data.draw(st.sampled_from(["format", "info", "lists"]))
    for damaged in (spoiled, json.dumps({**json.loads(whole), key: other}).encode(), json.dumps(other).encode()):
        path = tmp_path / "damaged.json"
        path.write_bytes(damaged)
        earlier = read(ListFile(path, "up"))
        # What can still be read is in the form of what can be listed.
        assert earlier is None or all(isinstance(item, dict) for each in earlier.lists.values() for item in each.items)


def test_file_of_another_format_or_too_large_is_passed_over(tmp_path):
    path = tmp_path / "other.json"
    told = {"modern": False, "info": {}, "instructions": None, "lists": {}}
    for text in (json.dumps({"format": 2, **told}), " " * 5_000_000 + json.dumps({"format": 1, **told})):
        path.write_text(text)
        assert read(ListFile(path, "up")) is None
    path.write_text(json.dumps({"format": 1, **told}))
    assert read(ListFile(path, "up")) is not None
