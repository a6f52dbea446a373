"""How often a real model calls the right tool of 120 deferred ones, with and without suggestions.

`python -m bench.tool_search.single_calls MODEL.gguf` asks each of the thirty tasks in `tasks.json` once, each in a new
conversation at temperature 0, and writes `results/single_calls.json`. The tasks were written before they were tried. A
task succeeds if the answer has one call, of the right tool, with the arguments that the task says. The definitions of
all 120 tools take about 45,000 tokens, more than the context of the models that were tried; those of the 97 that are
not Notion's fit, and no task needs one of Notion's. `--arm "97 in the prompt"` asks with these; the first answer takes
a core most of an hour.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2

from bench.processes import serving_gateway
from bench.record import write
from bench.tool_search.definitions import as_client

_TASKS: Final = Path(__file__).parent / "tasks.json"
_WORDS: Final = 160
"""Most tokens of an answer."""
_TIMEOUT: Final = 3600


class Task(NamedTuple):
    """One question that one call answers."""

    tool: str
    """`server/name`."""
    ask: str
    arguments: dict[str, Any]
    """Arguments that the call must have; others are free."""

    @property
    def name(self) -> str:
        """The tool's name as the client sends it."""
        return "mcp__" + self.tool.replace("/", "__")


class Arm(NamedTuple):
    """One way of offering the tools."""

    deferred: bool
    suggested: int
    context: int
    without: tuple[str, ...] = ()
    """Beginnings of the names of tools that are not offered."""


ARMS: Final[Mapping[str, Arm]] = {
    "deferred": Arm(deferred=True, suggested=3, context=12_288),
    "deferred, none suggested": Arm(deferred=True, suggested=0, context=12_288),
    "97 in the prompt": Arm(deferred=False, suggested=0, context=32_768, without=("mcp__notion__",)),
}


_USUAL: Final = [name for name, arm in ARMS.items() if arm.deferred]


def tasks() -> list[Task]:
    """Read the tasks."""
    return [Task(**each) for each in json.loads(_TASKS.read_text(encoding="utf-8"))]


def tools_of(arm: Arm) -> list[dict[str, Any]]:
    """Return the tools as a client of OpenAI's chats sends them."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": entry.definition.get("description", ""),
                "parameters": entry.definition.get("inputSchema") or {"type": "object"},
            },
            **({"defer_loading": True} if arm.deferred else {}),
        }
        for entry in as_client().values()
        if not (name := str(entry.definition["name"])).startswith(arm.without or ("-",))
    ]


def is_right(task: Task, message: Mapping[str, Any]) -> bool:
    """Whether an answer's message is the call that the task asks for."""
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    if [call["function"]["name"] for call in calls] != [task.name]:
        return False
    try:
        arguments: dict[str, Any] = dict(json.loads(calls[0]["function"]["arguments"]))
    except (ValueError, TypeError):
        return False
    return all(arguments.get(key) == each for key, each in task.arguments.items())


def measure(model: Path, arm: Arm, threads: int, asked: Sequence[Task]) -> dict[str, Any]:
    """Ask the tasks; return how many were right, and each answer."""
    settings = (
        f'[engine]\nkind = "embedded"\nmodel = {json.dumps(str(model))}\ncontext = {arm.context}\nslots = 1\n'
        f"threads = {threads}\n[agent]\nsuggested_tools = {arm.suggested}\n"
        'defer_client_tools = "never"\n'
    )
    tools, rows = tools_of(arm), list[dict[str, Any]]()
    with (
        tempfile.TemporaryDirectory() as folder,
        serving_gateway(Path(folder), {}, settings=settings) as gateway,
        httpx2.Client(base_url=gateway.url, timeout=_TIMEOUT) as client,
    ):
        for task in asked:
            rows.append(_asked(client, task, tools))
            print(json.dumps(rows[-1]), flush=True)
    return {
        "right": sum(row["right"] for row in rows),
        "of": len(rows),
        "tools": len(tools),
        "first_prompt_tokens": rows[0]["prompt"],
        "first_answer_s": rows[0]["seconds"],
        "later_answers_median_s": round(statistics.median(row["seconds"] for row in rows[1:] or rows), 1),
        "answers": rows,
    }


def _asked(client: httpx2.Client, task: Task, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    body = {
        "model": "any",
        "messages": [{"role": "user", "content": task.ask}],
        "tools": tools,
        "temperature": 0,
        "max_tokens": _WORDS,
    }
    start = time.monotonic()
    answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    message = answer["choices"][0]["message"]
    calls = [each["function"] for each in message.get("tool_calls") or ()]
    return {
        "tool": task.tool,
        "right": is_right(task, message),
        "calls": [f"{each['name']} {each['arguments']}"[:200] for each in calls],
        "said": str(message.get("content") or "")[:120],
        "generations": len(answer["codec"]["turns"]),
        "prompt": answer["codec"]["turns"][0]["prompt_n"] + answer["codec"]["turns"][0]["cache_n"],
        "processed": sum(turn["prompt_n"] for turn in answer["codec"]["turns"]),
        "seconds": round(time.monotonic() - start, 1),
    }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--arm", choices=ARMS, action="append")
    parser.add_argument("--tasks", type=int, default=len(tasks()), help="only the first so many")
    options = parser.parse_args()
    results = {
        name: measure(options.model, ARMS[name], options.threads, tasks()[: options.tasks])
        for name in options.arm or _USUAL
    }
    for name, each in results.items():
        print(name, {key: value for key, value in each.items() if key != "answers"})
    if not options.arm and options.tasks == len(tasks()):
        write("single_calls", ("codec-gateway", "xllamacpp"), {"model": options.model.name, **results})


if __name__ == "__main__":
    main()
