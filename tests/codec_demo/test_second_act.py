"""The demo's second part: counts from what servers answer, and a chart that fits every terminal."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from codec_demo.agent_loop import STEPS, Exchange
from codec_demo.agent_tools import definitions, search_result
from codec_demo.second_act import GATEWAY, PLAIN, Request, SecondAct, count
from codec_demo.second_transcript import second_act_as_json, sentences, show_second_act
from gateway.agent.calls.request_tools import NO_DEFERRAL, gathered
from gateway.config import EngineConfig
from gateway.context.memory.defined_tools import ToolDigests
from gateway.toolcalls.schema.spec import read_tools


def answer(server: str, prompt: int, cached: int, written: int = 10) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": written}
    if server == GATEWAY:
        return {"usage": usage, "codec": {"turns": [{"cache_n": cached, "ttft_ms": 5.0}]}}
    return {"usage": usage, "timings": {"cache_n": cached, "prompt_ms": 7.0}}


def exchange(number: int, who: str, server: str, prompt: int, cached: int) -> Exchange:
    return Exchange(number, who, server, True, ("read_file",), answer(server, prompt, cached))


def request(number: int, recomputed: int, prompt: int = 1469, cached: int = 0) -> Request:
    return Request(number, "sub-agent", True, (), prompt, cached, recomputed, 12_345.0)


def shown(act: SecondAct, width: int, *, terminal: bool) -> str:
    file = io.StringIO()
    show_second_act(act, Console(file=file, width=width, force_terminal=terminal, no_color=True, highlight=False))
    return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())


ACT = SecondAct((request(1, 0), request(2, 0, 43)), (request(1, 0), request(2, 938, 981)))


def test_recomputed_is_what_the_conversation_had_in_the_cache_and_did_not_find() -> None:
    act = count([exchange(n, "agent", PLAIN, *each) for n, each in enumerate([(100, 0), (150, 109), (200, 100)], 1)])

    assert [each.recomputed for each in act.plain] == [0, 0, 59]
    assert [each.processed for each in act.plain] == [100, 41, 100]
    assert [each.ms for each in act.plain] == [7.0] * 3


def test_new_conversation_is_held_to_what_the_better_server_found_of_the_shared_beginning() -> None:
    asked = [("agent", GATEWAY, 0), ("agent", PLAIN, 0), ("sub-agent", PLAIN, 90), ("sub-agent", GATEWAY, 20)]
    act = count([exchange(1 + n // 2, who, server, 100, cached) for n, (who, server, cached) in enumerate(asked)])

    assert [each.recomputed for each in act.plain] == [0, 0]
    assert [each.recomputed for each in act.gateway] == [0, 70]


@pytest.mark.parametrize("width", [40, 60, 71, 72, 80, 200])
def test_chart_fits_a_terminal_of_any_width(width: int) -> None:
    for terminal in (False, True):
        lines = shown(ACT, width, terminal=terminal).splitlines()
        assert max(map(len, lines)) <= width
        assert len([line for line in lines if " of " in line and line.endswith(("█", "░", "#", "-"))]) == 4 * (
            width >= 72
        )


def test_bars_show_what_was_recomputed_in_front_of_what_was_new() -> None:
    piped, drawn = (shown(ACT, 80, terminal=terminal) for terminal in (False, True))

    assert piped.isascii()
    (row,) = [line for line in piped.splitlines() if " 938 of " in line]
    bar = row.split()[-1]
    assert bar == "#" * bar.count("#") + "-" * bar.count("-")
    assert bar.count("#") > 10 * bar.count("-") > 0
    assert "█" in drawn
    assert "░" in drawn


def test_dumb_terminal_gets_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")

    assert "█" not in shown(ACT, 80, terminal=True)


def test_small_gain_is_called_small() -> None:
    told = " ".join(sentences(ACT))

    assert "0 behind the gateway, 938 without it" in told
    assert "All of them in request 2" in told
    assert "Small or no gain in requests 1: 50 tokens at most in each." in told


def test_request_whose_first_token_comes_later_behind_the_gateway_is_named() -> None:
    late, soon = (Request(1, "agent", True, (), 10, 0, 0, ms) for ms in (1250.0, 1100.0))

    assert "request 1 (1.2 s, 1.1 s without it)" in " ".join(sentences(SecondAct((late,), (soon,))))
    assert "Later to the first token" not in " ".join(sentences(SecondAct((soon,), (late,))))


def test_without_any_gain_no_request_is_blamed() -> None:
    same = SecondAct((request(1, 0),), (request(1, 0),))

    assert "of them in request" not in " ".join(sentences(same))


def test_json_has_the_figures_of_the_chart() -> None:
    told = second_act_as_json(ACT)

    assert told["plain"][1] == {
        "request": 2,
        "who": "sub-agent",
        "calls": [],
        "call_required": True,
        "prompt": 981,
        "cached": 0,
        "processed": 981,
        "recomputed": 938,
        "ttft_ms": 12_345.0,
    }
    assert told["summary"] == sentences(ACT)


def test_agent_has_twenty_tools_and_eight_requests_with_results_of_several_hundred_tokens() -> None:
    assert len({each["function"]["name"] for each in definitions()}) == 20
    assert [step.who for step in STEPS].count("sub-agent") == 2
    assert len(STEPS) == 8
    assert len(search_result(11, 1)) > 600


def test_gateway_defers_none_of_the_tools_since_llama_server_has_them_all_in_its_prompt() -> None:
    engine, tools = EngineConfig(), read_tools(definitions())
    told = gathered(((), {}), tools, NO_DEFERRAL, (), engine.context // engine.slots, "auto", ToolDigests())

    assert told.tools == tools
