"""`codec-gateway demo`: the loop as a newcomer first sees it, for people and for machines."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

# Two models generate at the same time, on whatever else the machine does.
pytestmark = pytest.mark.timeout(600)
COLUMNS = 40
CLOCK = re.compile(r"\d\d:\d\d")


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, tuple[subprocess.Popen[str], str, str]]]:
    """Both forms, side by side, in pipes: each takes its time to generate."""
    environment = {"COLUMNS": str(COLUMNS), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "gateway", "demo"]
    processes = {
        form: subprocess.Popen(
            [*command, *flags], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for form, flags in {"json": ["--json"], "plain": []}.items()
    }
    try:
        yield {form: (process, *process.communicate(timeout=500)) for form, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()


@pytest.fixture(scope="module")
def story(runs: dict[str, Any]) -> dict[str, Any]:
    process, out, errors = runs["json"]
    assert process.returncode == 0, errors
    told = json.loads(out)
    assert isinstance(told, dict)
    return told


def test_one_question_goes_through_a_leaf_and_one_through_the_shim(story):
    assert story["metrics"]["bypasses"] >= 1
    assert story["metrics"]["shim_tokenizations"] >= 1
    assert [(call["source"], call["is_error"]) for call in story["tool_calls"]] == [("leaf", False), ("shim", False)]


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


def test_transcript_fits_a_narrow_page_and_has_no_colour_codes_in_a_pipe(runs):
    process, out, errors = runs["plain"]

    assert process.returncode == 0, errors
    assert max(map(len, out.splitlines())) <= COLUMNS
    assert "\x1b" not in out + errors
    assert "What time is it in Paris?" in out
    assert "1 leaf bypass, 1 shim" in out


def test_application_with_its_own_tool_finds_all_again_through_the_gateway_alone(story):
    through, alone = story["own_tool"]["through"], story["own_tool"]["alone"]

    assert [bool(each["calls"]) for each in alone] == [True, False, True, False]
    assert [len(each["calls"]) for each in through] == [1, 0, 1, 0]
    assert all(each["cache_n"] == each["held"] > 0 and not each["lost"] for each in through[1:])
    assert alone[1]["lost"] == alone[1]["held"] - alone[1]["cache_n"] > 0
    assert alone[1]["why"] == "the call came back as different ids"


def test_losses_of_the_application_are_told_with_their_reason(runs):
    _, out, _ = runs["plain"]
    words = " ".join(out.split())

    assert "request 2: the model answers" in words
    assert "ids lost, because the call came back as different ids" in words
    assert "processed 0 ids again behind the gateway" in words
    assert "The first request gains nothing." in words


@pytest.mark.parametrize("form", ["json", "plain"])
def test_progress_goes_to_stderr_a_line_a_step(runs, form):
    _, _, errors = runs[form]

    assert errors.splitlines()[0].startswith("... ")
    assert all(line.startswith("... ") for line in errors.splitlines())
