"""Forty tasks for real models: right answers through the gateway and with a stock llama-server, side by side.

`python -m bench.real_models [MODEL ...]` fetches each model, starts both servers with it, and asks them each task in
turns: once at temperature 0, and with `--seeds N` that often at 0.7. It writes `results/real_models.json` after each
model, with the results of models that were not run kept as they are; with `--kind` also those of other kinds of tasks.
`--short` asks four tasks once. `--loop` runs an agent's loop at each server instead (`loop.py`), and also writes the
table in `bench/README.md`.

Answers are kept beside the model's file as they come, so a run that was cut off goes on where it was, and one with more
seeds asks only what is new. Answers of another state of the gateway, or to other tasks, are not used.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2

from bench.first_delta import process
from bench.processes import serving_gateway
from bench.real_models import loop
from bench.real_models.judge import is_right, is_valid
from bench.real_models.models import FOLDER, MODELS, Model, fetch
from bench.real_models.tasks import TASKS, Task, body
from bench.record import RESULTS, write

_PACKAGES: Final = ("codec-gateway", "xllamacpp")
_CONTEXT: Final = 4096
_SHORT: Final = (0, 13, 28, 32)
_TIMEOUT: Final = 900
_SAMPLED: Final = 0.7
_SAID: Final = 160
"""Characters of an answer's text that its row shows."""
_SIDES: Final = ("gateway", "stock")
PAGE: Final = RESULTS.parent / "README.md"

_Answers = dict[str, Any]
"""`task`: its number; `seed`; and each server's answer, by the server's name."""
_Row = dict[str, Any]


@contextmanager
def both_servers(model: Path, threads: int) -> Generator[dict[str, httpx2.Client]]:
    """Start the gateway and a stock server with one slot and as many threads each; yield a client of each."""
    settings = (
        f'[engine]\nkind = "embedded"\nmodel = {json.dumps(str(model))}\n'
        f"context = {_CONTEXT}\nslots = 1\nthreads = {threads}\n"
    )
    plain = {"model": str(model), "context": _CONTEXT, "slots": 1, "threads": threads}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving_gateway(Path(folder), {}, settings=settings) as gateway,
        process("codec_demo.plain_server", json.dumps(plain)) as child,
    ):
        stock = (child.stdout.readline() if child.stdout else "").strip()
        with (
            httpx2.Client(base_url=gateway.url, timeout=_TIMEOUT) as through,
            httpx2.Client(base_url=stock, timeout=_TIMEOUT) as directly,
        ):
            yield {"gateway": through, "stock": directly}


def asked(clients: Mapping[str, httpx2.Client], tasks: Sequence[Task], seeds: int, kept: Path) -> Iterator[_Answers]:
    """Ask both servers each task, taking turns in which comes first; yield the answers to each.

    `kept`: a file of answers; those that it has are not asked for again, and those that come are added.
    """
    known = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()] if kept.is_file() else []
    found = {(each["task"], each["seed"]): each for each in known}
    with kept.open("a", encoding="utf-8") as file:
        for task in tasks:
            number = TASKS.index(task)
            for seed in range(seeds + 1):
                if (number, seed) not in found:
                    request = body(task, _SAMPLED if seed else 0.0, seed)
                    answers: _Answers = {"task": number, "seed": seed}
                    sides = list(clients.items())
                    for name, client in sides if (number + seed) % 2 else reversed(sides):
                        answer = client.post("/v1/chat/completions", json=request)
                        answers[name] = answer.json() if answer.status_code == 200 else {"error": answer.text[:300]}
                    file.write(json.dumps(answers) + "\n")
                    file.flush()
                    found[number, seed] = answers
                yield found[number, seed]


def judged(answers: _Answers) -> _Row:
    """Return the row of a question: for each server whether its answer is right, and the beginning of the answer."""
    number: int = answers["task"]
    task = TASKS[number]
    row = {"task": number, "kind": task.kind, "choice": task.choice, "seed": answers["seed"]}
    return row | {side: _judged(task, answers[side]) for side in _SIDES}


def _judged(task: Task, answer: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        return {"right": False, "valid": False, "error": answer["error"]}
    message = answer["choices"][0]["message"]
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    made = [f"{call['function']['name']} {call['function']['arguments']}" for call in calls]
    return {
        "right": is_right(task, answer),
        "valid": bool(calls) and all(map(is_valid, calls)),
        "calls": made,
        "said": (message.get("content") or "")[:_SAID],
    }


def summed(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Sum up by kind, and separately over free and forced tasks: how many were asked, and right at each server."""
    sums: dict[str, dict[str, int]] = {}
    for row in rows:
        forced = row["choice"] not in ("auto", "none")
        for name in (row["kind"], "forced: valid" if forced else "free"):
            total = sums.setdefault(name, {"asked": 0} | dict.fromkeys(_SIDES, 0))
            total["asked"] += 1
            for side in _SIDES:
                total[side] += row[side]["valid" if name == "forced: valid" else "right"]
    return sums


def replaced(old: Sequence[_Row], new: Sequence[_Row]) -> list[_Row]:
    """Return the rows of a model with those of new answers in place of the old ones to the same questions."""
    rows = {(row["task"], row["seed"]): row for row in (*old, *new)}
    return [rows[key] for key in sorted(rows)]


def sums_of(rows: Sequence[_Row]) -> dict[str, dict[str, dict[str, int]]]:
    """Sum up by temperature."""
    sums = {"temperature 0": summed([row for row in rows if not row["seed"]])}
    if sampled := [row for row in rows if row["seed"]]:
        sums[f"temperature {_SAMPLED}, {max(row['seed'] for row in sampled)} seeds"] = summed(sampled)
    return sums


def measure(model: Model, tasks: Sequence[Task], seeds: int, threads: int) -> list[_Row]:
    """Run one model; return the rows of its answers."""
    command = ["git", "rev-parse", "HEAD:gateway", "HEAD:bench/real_models/tasks.py"]
    state = subprocess.run(command, capture_output=True, text=True, check=True)
    kept = FOLDER / f"{'-'.join([model.name, *(each[:8] for each in state.stdout.split())])}.answers"
    rows: list[_Row] = []
    with both_servers(fetch(model), threads) as clients:
        for answers in asked(clients, tasks, seeds, kept):
            rows.append(judged(answers))
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    return rows


def looped(model: Model, threads: int) -> dict[str, Any]:
    """Run one model's loop at each server."""
    with both_servers(fetch(model), threads) as clients:
        return {side: loop.run(clients[side]) for side in _SIDES}


def known_results() -> dict[str, Any]:
    """Return what is known of each model."""
    path = RESULTS / "real_models.json"
    return json.loads(path.read_text(encoding="utf-8"))["models"] if path.is_file() else {}


def write_results(name: str, found: Mapping[str, Any]) -> None:
    """Write what was found of one model beside what is known, and the page's table."""
    known = known_results()
    known[name] = {**known.get(name, {}), **found}
    write("real_models", _PACKAGES, {"models": known})
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), known), encoding="utf-8")


def with_table(page: str, models: Mapping[str, Any]) -> str:
    """Return the page with the table of the loops in place of the one that it has."""
    head, _, rest = page.partition("| model | server |")
    _, _, behind = rest.partition("\n\n")
    return f"{head}{loop.table(models)}\n{behind}"


def main() -> None:
    """Fetch, run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="*", choices=[*MODELS, []], default=[])
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of each server; 1 beside other work")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--loop", action="store_true", help="an agent's loop of eight requests instead of the tasks")
    parser.add_argument("--kind", action="append", choices={task.kind for task in TASKS}, help="only these; repeatable")
    options = parser.parse_args()
    tasks = [TASKS[number] for number in _SHORT] if options.short else list(TASKS)
    tasks = [task for task in tasks if not options.kind or task.kind in options.kind]
    for name in options.model or list(MODELS):
        if options.loop:
            write_results(name, {"loop": looped(MODELS[name], options.threads)})
            continue
        found = measure(MODELS[name], tasks, options.seeds, options.threads)
        print(json.dumps({name: sums_of(found)}, indent=1))
        if not options.short:
            rows = replaced(known_results().get(name, {}).get("rows", []) if options.kind else [], found)
            write_results(name, {"sha256": MODELS[name].sha256, "sums": sums_of(rows), "rows": rows})


if __name__ == "__main__":
    main()
