"""The judge of `bench/real_models` holds the gateway and a stock server to the same rules."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bench.real_models import loop
from bench.real_models.__main__ import PAGE, asked, judged, replaced, summed, with_table
from bench.real_models.judge import are_words, is_right, is_valid
from bench.real_models.tasks import TASKS, TOOLS, Task
from tests.cases import each_of


def answer(content: str | None = None, *calls: tuple[str, str]) -> dict[str, Any]:
    made = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    return {"choices": [{"message": {"content": content, "tool_calls": made}}]}


def task(words: str) -> Task:
    return next(each for each in TASKS if words in str(each.messages))


SUM = task("What is 2 + 2?")
NOTES = next(each for each in TASKS if each.kind == "after a result" and "notes" in str(each.messages))
LOST = task("there is no file a.txt")
EVENT = next(each for each in TASKS if each.kind == "nested")
BOTH = task("in Oslo and in Rome")
CALL = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'


@each_of(
    ("given", "said", "right"),
    [
        (SUM, "2 + 2 is 4.", True),
        (SUM, "Four, of course.", True),
        (SUM, "I can't tell.", False),
        (SUM, "42", False),
        (SUM, "", False),
        (SUM, None, False),
        (SUM, '{"answer": 4}', False),
        (SUM, '```json\n{"answer": 4}\n```', False),
        (NOTES, "You have two: Shopping and travel.", True),
        (NOTES, "You have some notes.", False),
        (NOTES, 'I call {"name": "list_notes", "arguments": {}} for shopping, travel.', False),
        (LOST, "The file does not exist.", True),
        (LOST, "I couldn’t find it.", True),
        (LOST, "It says hello.", False),
    ],
)
def test_answer_in_words_is_right_if_it_says_what_was_asked(given: Task, said: str | None, *, right: bool) -> None:
    assert is_right(given, answer(said)) is right


def test_answer_in_words_with_a_call_beside_them_is_wrong() -> None:
    assert not is_right(SUM, answer("4", ("get_weather", '{"city": "Oslo"}')))


@each_of(
    "said",
    [
        CALL,
        f"```json\n{CALL}\n```",
        f"```\n{CALL}",
        f"Let me see.\n{CALL}\nDone.",
        f"[{CALL}]",
        CALL[:40],
        f"<tool_call>\n{CALL}\n</tool_call>",
        "<tool_call>",
        "{'name': 'get_time'}",
        '{"tool_name": "list_notes"}',
        "[]",
        "```json\n{}\n```",
        " ",
    ],
)
def test_json_and_the_text_of_a_call_are_no_words(said: str) -> None:
    assert not are_words(said.strip())


@pytest.mark.parametrize(
    "said",
    ["Hello!", "4", '"Merci"', "Use `{}` for an empty object.", "```python\nprint(4)\n```", 'Its "name" is "get it".'],
)
def test_words_may_hold_code_and_numbers(said: str) -> None:
    assert are_words(said)


def test_calls_may_come_in_any_order_but_each_only_once() -> None:
    oslo, rome = (("get_weather", json.dumps({"city": city})) for city in ("Oslo", "Rome"))

    assert is_right(BOTH, answer(None, rome, oslo))
    assert not is_right(BOTH, answer(None, oslo, oslo))
    assert not is_right(BOTH, answer(None, oslo))
    assert not is_right(BOTH, answer(f"```json\n{CALL}\n```"))


def test_arguments_must_fit_the_schema_and_the_task() -> None:
    good = {"title": "Review", "when": {"date": "2027-01-15", "time": "09:30"}}

    assert is_right(EVENT, answer(None, ("add_event", json.dumps(good))))
    assert not is_right(EVENT, answer(None, ("add_event", json.dumps(good | {"title": "Other"}))))
    assert not is_right(EVENT, answer(None, ("add_event", json.dumps(good | {"attendees": "Ada"}))))
    assert not is_valid({"function": {"name": "add_event", "arguments": "{"}})
    assert not is_valid({"function": {"name": "none_such", "arguments": "{}"}})


def test_every_task_wants_calls_or_words_and_offers_tools_that_exist() -> None:
    assert len(TASKS) == 40
    for each in TASKS:
        assert bool(each.calls) is (each.says is None)
        assert {name for name, _ in each.calls} | {*each.tools} <= {*TOOLS}


def test_no_history_begins_as_another_task_does() -> None:
    """The gateway would continue what its model wrote there, and a stock server what the task says."""
    asked_before = [each.messages for each in TASKS if len(each.messages) == 1]

    assert not [each for each in TASKS if len(each.messages) > 1 and each.messages[:1] in asked_before]


class Server:
    """Says the same to everything, and counts."""

    def __init__(self, said: dict[str, Any], status: int = 200) -> None:
        self.status_code, self.text, self.times = status, "no", 0
        self.json = lambda: said

    def post(self, path: str, *, json: dict[str, Any]) -> "Server":
        self.times += 1
        return self


def test_run_that_was_cut_off_asks_only_what_is_new(tmp_path: Path) -> None:
    kept, sides = tmp_path / "answers", {"gateway": Server(answer("4")), "stock": Server({}, 500)}

    def rows(seeds: int) -> list[dict[str, Any]]:
        return [judged(each) for each in asked(sides, [SUM, NOTES], seeds, kept)]  # pyright: ignore[reportArgumentType]

    next(asked(sides, [SUM], 0, kept))  # pyright: ignore[reportArgumentType]
    first, again = rows(0), rows(1)

    assert [side.times for side in sides.values()] == [4, 4]
    assert again[::2] == first
    assert [(row["gateway"]["right"], row["stock"]["right"]) for row in first] == [(True, False), (False, False)]
    assert summed(first)["free"] == {"asked": 2, "gateway": 1, "stock": 0}


def test_rows_of_one_kind_take_the_place_of_their_like() -> None:
    old = [{"task": task, "seed": seed, "right": 0} for task in (0, 1, 2) for seed in (0, 1)]
    new = [{"task": 1, "seed": seed, "right": 1} for seed in (0, 1, 2)]

    rows = replaced(old, new)

    assert [(row["task"], row["seed"], row["right"]) for row in rows] == [
        *((0, 0, 0), (0, 1, 0)),
        *((1, 0, 1), (1, 1, 1), (1, 2, 1)),
        *((2, 0, 0), (2, 1, 0)),
    ]


def chunks(*deltas: dict[str, Any], usage: dict[str, Any]) -> str:
    sent = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas] + [{"choices": [], "usage": usage}]
    return "".join(f"data: {json.dumps(each)}\n\n" for each in sent) + "data: [DONE]\n\n"


def test_loop_sends_back_what_came_and_counts_what_was_lost() -> None:
    asked_for: list[dict[str, Any]] = []
    begun = {"index": 0, "id": "c", "type": "function", "function": {"name": "get_time", "arguments": ""}}
    going_on = {"index": 0, "function": {"arguments": '{"city": "Oslo"}'}}

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked_for.append(json.loads(request.content))
        number = len(asked_for)
        details = {"cached_tokens": max(0, 100 * (number - 1) + (9 if number < 4 else 2))}
        usage = {"prompt_tokens": 100 * number, "completion_tokens": 10, "prompt_tokens_details": details}
        said = ({"tool_calls": [begun]}, {"tool_calls": [going_on]}) if number % 2 else ({"content": "So."},)
        return httpx2.Response(200, text=chunks(*said, usage=usage))

    with httpx2.Client(transport=httpx2.MockTransport(answer), base_url="http://engine") as client:
        rows = loop.run(client)

    assert [each["tool_choice"] for each in asked_for] == ["required"] * 7 + ["none"]
    first, second = asked_for[2]["messages"][1:3], asked_for[2]["messages"][3:]
    assert first[0]["tool_calls"][0]["function"] == {"name": "get_time", "arguments": '{"city": "Oslo"}'}
    assert (first[1]["role"], first[1]["tool_call_id"]) == ("tool", "c")
    assert [each["role"] for each in second] == ["assistant", "user"]
    assert [row["lost"] for row in rows] == [0, 0, 0, 7, 7, 7, 7, 7]
    assert [row["calls"] for row in rows] == [1, 0] * 4


def test_page_shows_the_loops_that_were_measured() -> None:
    models = json.loads((PAGE.parent / "results" / "real_models.json").read_text())["models"]
    page = PAGE.read_text()

    assert with_table(page, models) == page
