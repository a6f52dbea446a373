"""What `codec-gateway status` prints, on terminals of several widths."""

from typing import Any

import pytest
from rich.console import Console

from gateway.cli.status import print_report

MAP = "sha256:" + "ab" * 32


MALFORMED = [
    {"list": "tools", "item": "look", "field": "title", "reason": "expected a string, got null", "left_out": False}
]


def server(name: str, **more: Any) -> dict[str, Any]:
    tool = {"name": f"{name}__look", "tokens": 40, "estimated": False, "ids": "leaf", "pin_broken": False}
    return {
        "name": name,
        "state": "up",
        "protocol": "2026-07-28",
        "tools": [tool],
        "definition_tokens": 40,
        "definition_tokens_estimated": False,
        "in_flight": 3,
        "queued": 2,
        "sessions": 1,
        "restarts": 0,
        "breaker": "closed",
        "last_error": None,
        "invalid_tools": [],
        **more,
    }


@pytest.fixture
def report() -> dict[str, Any]:
    gone = server("gone", state="restarting", protocol=None, tools=[], breaker="open", last_error="its process ended")
    return {
        "version": "0.1.0",
        "ready": True,
        "uptime": 93_784.0,
        "reasons": [],
        "engine": {"kind": "none"},
        "maps": {"session": MAP, "accepted": [MAP, "sha256:" + "cd" * 32]},
        "keys": {"names": ["laptop"], "problem": None},
        "servers": [
            server("time", invalid_tools=[{"tool": "bad", "reason": "no header name"}], malformed=MALFORMED),
            gone,
        ],
        "pins": {"broken": [{"server": "time", "tool": "look"}], "problem": None},
        "shim": {"leaf_bypasses": 7, "tokenize_calls": 5},
        "definition_tokens": 40,
        "tool_search": False,
    }


def page_of(report: dict[str, Any], width: int, *, tools: bool = False) -> str:
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        print_report(console, report, tools=tools)
    return capture.get()


@pytest.mark.parametrize("width", [40, 60, 120])
def test_page_fits_the_terminal_and_keeps_what_matters(report, width: int) -> None:
    page = page_of(report, width, tools=True)

    lines = page.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert max(map(len, lines)) <= width
    assert (rows["time"][1], rows["gone"][1]) == ("up", "restarting")
    assert rows["time__look"][0] == "time__look"
    assert " ".join(page.split()).count("its process ended") == 1
    assert ("a wider terminal" in page) is (width < 120)


def test_wide_page_shows_every_number_under_its_title(report) -> None:
    lines = page_of(report, 120).splitlines()

    titles, row = (next(line for line in lines if line.startswith(word)).split() for word in ("server", "time"))
    assert dict(zip(titles, row, strict=True)) == {
        "server": "time",
        "state": "up",
        "protocol": "2026-07-28",
        "tools": "1",
        "tokens": "40",
        "running": "3",
        "waiting": "2",
        "sessions": "1",
        "restarts": "0",
        "breaker": "closed",
    }


def test_head_says_how_long_it_has_been_up_and_which_maps_it_takes(report) -> None:
    page = page_of(report, 120)

    assert "codec-gateway 0.1.0, ready, up for 1 d 2 h 3 min" in page
    assert f"map    {MAP[:19]}… and 1 more" in page
    assert "keys   laptop" in page
    assert "engine none" in page
    assert "! time: the definition of 'look' is not the pinned one: see codec-gateway pins show" in page
    assert "! time: 'bad' is not offered: no header name" in page
    assert "7 results came with ids, 5 were tokenized by the gateway" in page


def test_gateway_that_is_not_ready_says_every_reason(report) -> None:
    report |= {"ready": False, "reasons": ["engine: away", "draining: the gateway is stopping"], "servers": []}

    page = page_of(report, 60)

    assert "not ready" in page
    assert "! engine: away" in page
    assert "! draining: the gateway is stopping" in page
    assert "no servers" in page


def test_reason_of_an_engine_that_is_down_is_printed_once(report) -> None:
    engine = {"kind": "llama.cpp", "up": False, "state": "down", "reason": "nothing listens at http://127.0.0.1:1"}
    report |= {"ready": False, "reasons": [f"engine: {engine['reason']}", "upstream:time: gone"], "engine": engine}

    page = page_of(report, 200)

    assert page.count(engine["reason"]) == 1
    assert "engine llama.cpp, down: nothing listens" in page
    assert "! upstream:time: gone" in page


def test_workers_are_shown_where_there_are_several(report) -> None:
    alone = page_of(report, 80)
    report["workers"] = [{"ready": True, "restarts": 0}, {"ready": False, "restarts": 3}]

    assert "workers" not in alone
    assert "workers 1 of 2 ready, 3 restarts" in page_of(report, 80)


def test_malformed_fields_of_a_server_are_counted_and_the_first_is_told(report) -> None:
    page = " ".join(page_of(report, 200).split())

    assert "time: 1 malformed fields in its lists (see codec-gateway doctor time), the first: 'look': title:" in page
