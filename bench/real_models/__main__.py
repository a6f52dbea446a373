"""Forty tasks for real models: right answers through the gateway and with a stock llama-server, side by side.

`python -m bench.real_models [MODEL ...]` fetches each model, starts both servers with it, and asks them each task in
turns: once at temperature 0, and with `--seeds N` that often at 0.7. It writes `results/real_models.json` after each
model, with the results of models that were not run kept as they are. `--short` asks four tasks once.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2

from bench.first_delta import process
from bench.processes import serving_gateway
from bench.real_models.models import MODELS, Model, fetch
from bench.real_models.tasks import TASKS, Task, body, is_right, is_valid
from bench.record import RESULTS, write

_PACKAGES: Final = ("codec-gateway", "xllamacpp")
_CONTEXT: Final = 4096
_SHORT: Final = (0, 13, 28, 32)
_TIMEOUT: Final = 900
_SAMPLED: Final = 0.7


@contextmanager
def both_servers(model: Path) -> Generator[dict[str, httpx2.Client]]:
    """Start the gateway and a stock server with one slot and as many threads each; yield a client of each."""
    threads = os.cpu_count() or 1
    settings = (
        f'[engine]\nkind = "embedded"\nmodel = {json.dumps(str(model))}\n'
        f"context = {_CONTEXT}\nslots = 1\nthreads = {threads}\n"
    )
    plain = {"model": str(model), "context": _CONTEXT, "slots": 1, "threads": threads}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving_gateway(Path(folder), {}, settings=settings) as gateway,
        process("gateway.cli.demo.plain_server", json.dumps(plain)) as child,
    ):
        stock = (child.stdout.readline() if child.stdout else "").strip()
        with (
            httpx2.Client(base_url=gateway.url, timeout=_TIMEOUT) as through,
            httpx2.Client(base_url=stock, timeout=_TIMEOUT) as directly,
        ):
            yield {"gateway": through, "stock": directly}


def asked(clients: Mapping[str, httpx2.Client], tasks: Sequence[Task], seeds: int) -> Iterator[dict[str, Any]]:
    """Ask both servers each task, taking turns in which comes first; yield a row a question."""
    for number, task in enumerate(tasks):
        for seed in range(seeds + 1):
            sides = list(clients.items())
            row: dict[str, Any] = {"task": number, "kind": task.kind, "choice": task.choice, "seed": seed}
            for name, client in sides if (number + seed) % 2 else reversed(sides):
                request = body(task, _SAMPLED if seed else 0.0, seed)
                row[name] = _judged(task, client.post("/v1/chat/completions", json=request))
            print(json.dumps(row, ensure_ascii=False), flush=True)
            yield row


def _judged(task: Task, answer: httpx2.Response) -> dict[str, Any]:
    if answer.status_code != 200:
        return {"right": False, "valid": False, "error": answer.text[:300]}
    found = answer.json()
    calls: list[dict[str, Any]] = found["choices"][0]["message"].get("tool_calls") or []
    return {"right": is_right(task, found), "calls": len(calls), "valid": bool(calls) and all(map(is_valid, calls))}


def summed(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Sum up by kind, and separately over free and forced tasks: how many were asked, and right at each server."""
    sums: dict[str, dict[str, int]] = {}
    for row in rows:
        forced = row["choice"] not in ("auto", "none")
        for name in (row["kind"], "forced: valid" if forced else "free"):
            total = sums.setdefault(name, {"asked": 0, "gateway": 0, "stock": 0})
            total["asked"] += 1
            for side in ("gateway", "stock"):
                total[side] += row[side]["valid" if name == "forced: valid" else "right"]
    return sums


def measure(model: Model, tasks: Sequence[Task], seeds: int) -> dict[str, Any]:
    """Run one model."""
    with both_servers(fetch(model)) as clients:
        rows = list(asked(clients, tasks, seeds))
    return {"sha256": model.sha256, "sums": summed(rows), "rows": rows}


def main() -> None:
    """Fetch, run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="*", choices=[*MODELS, []], default=[])
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    tasks = [TASKS[number] for number in _SHORT] if options.short else list(TASKS)
    path = RESULTS / "real_models.json"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["models"] if path.is_file() else {}
    for name in options.model or list(MODELS):
        found = measure(MODELS[name], tasks, options.seeds)
        print(json.dumps({name: found["sums"]}, indent=1))
        if not options.short:
            known[name] = found
            write("real_models", _PACKAGES, {"models": known})


if __name__ == "__main__":
    main()
