"""`codec-gateway demo`: the loop as a newcomer first sees it, for people and for machines."""

import json
import re
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from codec_demo.agent_loop import Step
from codec_demo.second_act import SecondAct, play

# Two models generate at the same time, on whatever else the machine does.
pytestmark = pytest.mark.timeout(600)
COLUMNS = 40
CLOCK = re.compile(r"\d\d:\d\d")


BOTH_FORMS = """
import sys, codec_demo
from contextlib import redirect_stdout
from gateway.cli.app import run

told = []
tell = codec_demo.tell

async def tell_once(progress):
    told.append(told[0] if told else await tell(progress))
    return told[0]

codec_demo.tell = tell_once
with open(sys.argv[1], "w", encoding="utf-8") as file, redirect_stdout(file):
    code = run(["demo", "--short", "--json"])
sys.exit(code or run(["demo", "--short"]))
"""


class Ran(NamedTuple):
    """What one demo printed."""

    code: int
    json: str
    plain: str
    errors: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Both forms of one story, in pipes: the model takes its time to generate."""
    form = tmp_path_factory.mktemp("demo") / "story.json"
    environment = {"COLUMNS": str(COLUMNS), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", BOTH_FORMS, form]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    return Ran(done.returncode, form.read_text(encoding="utf-8"), done.stdout, done.stderr)


@pytest.fixture(scope="module")
def story(ran: Ran) -> dict[str, Any]:
    assert ran.code == 0, ran.errors
    told = json.loads(ran.json)
    assert isinstance(told, dict)
    return told


def test_one_question_goes_through_a_leaf_and_one_through_the_shim(story):
    assert story["metrics"]["bypasses"] >= 1
    assert story["metrics"]["shim_tokenizations"] >= 1
    assert [(call["source"], call["is_error"]) for call in story["tool_calls"]] == [("leaf", False), ("shim", False)]


def test_ids_of_each_result_are_shown_and_are_those_that_were_added(story):
    added = [sum(turn["reinjected"].values()) for turn in story["turns"]]

    assert [len(call["ids"]) for call in story["tool_calls"]] == [count for count in added if count]


def test_each_answer_tells_the_time_that_its_tool_told(story):
    # Once in a while this small model writes 09:57 as 9:57.
    told = [CLOCK.search(call["result"])[0].removeprefix("0") for call in story["tool_calls"]]

    assert len(told) == 2
    for time, one in zip(told, story["answers"], strict=True):
        assert time in one["answer"], one


def test_every_turn_after_the_first_finds_its_past_in_the_cache(story):
    first, *later = story["turns"]

    assert first["held"] == 0
    assert len(later) == 3
    for turn in later:
        assert turn["cache_n"] >= 0.95 * turn["held"] > 0


def test_text_path_drifts_where_the_token_path_can_not(story):
    assert story["text_path"]["drift_positions"] > 0
    assert story["text_path"]["turns"][1]["cache_n"] < story["text_path"]["turns"][1]["held"]
    assert len(story["text_path"]["turns"]) == len(story["turns"])


def test_transcript_fits_a_narrow_page_and_has_no_colour_codes_in_a_pipe(ran: Ran) -> None:
    assert ran.code == 0, ran.errors
    assert max(map(len, ran.plain.splitlines())) <= COLUMNS
    assert "\x1b" not in ran.plain + ran.errors
    assert "What time is it in Paris?" in ran.plain
    assert "1 sent by the tool, 1 made by the gateway" in " ".join(ran.plain.split())


@pytest.fixture(scope="module")
def act(one_layer: Path) -> SecondAct:
    """The second part with fewer tools, shorter results, fewer requests and fewer layers, so that it takes seconds."""
    steps = (Step("agent", 2), Step("agent", "It works."), Step("sub-agent"), Step("agent"))
    return anyio.run(play, lambda _: None, steps, 3, one_layer)


def test_gateway_recomputes_nothing_and_a_plain_server_what_the_sub_agent_took(act: SecondAct) -> None:
    assert [(each.who, each.recomputed) for each in act.gateway[:3]] == [("agent", 0), ("agent", 0), ("sub-agent", 0)]
    assert act.gateway[3].recomputed == 0
    assert act.plain[3].recomputed > 50
    assert act.plain[3].processed > act.gateway[3].processed


def test_both_servers_get_the_same_prompt(act: SecondAct) -> None:
    for through, plain in ((act.gateway[number], act.plain[number]) for number in (0, 2)):
        assert through.prompt == plain.prompt > 200
    assert all(each.ms > 0 for each in chain(act.gateway, act.plain))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_says_so_in_a_line_and_leaves_no_process(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "demo", "--short"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert any("starting llama.cpp" in line for line in process.stderr)
    process.send_signal(number)
    out, errors = process.communicate(timeout=240)

    assert process.returncode == 130
    assert (out, errors.splitlines()) == ("", ["codec-gateway: the demo was interrupted"])
    assert [each for each in Path("/proc").glob("[0-9]*") if _session(each) == process.pid] == []


def _session(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0


def test_progress_goes_to_stderr_a_line_a_step(ran: Ran) -> None:
    assert ran.errors.splitlines()[0].startswith("... ")
    assert all(line.startswith("... ") for line in ran.errors.splitlines())
