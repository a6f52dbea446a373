"""One agent does the task through a gateway before a scripted engine; what it left behind is judged.

An exit code proves nothing: what counts is the file, the number of generations, what the gateway's report says was
found again, and what the agent printed.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.processes import serving_gateway
from leaf_sdk.fetch import open_map
from tests.agents.scripted_engine import ScriptedEngine, scripted_engine
from tests.agents.task import Agent, Script, Started

TEMPLATE: Final = Path(__file__).parents[1] / "third_party" / "chat_templates" / "Qwen-Qwen2.5-7B-Instruct.jinja"
_CLOCK: Final = Path(__file__).parents[1] / "e2e" / "servers" / "clock.py"
_TIME: Final = 900.0
"""Ends an agent that hangs; on idle cores each takes less than a minute."""
_COMPLAINT: Final = re.compile(r"\b(error|failed|panic|unhandled|invalid)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Done:
    """How it went."""

    generations: int
    """Of prompts with tools."""
    later: int
    """Requests that carried the conversation on."""
    whole: int
    """Of them, those for which the engine found all that it had held, or the answer said why not."""
    held: int
    lost: int
    """Ids that the engine had held and processed again."""
    faults: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.generations} generations, {self.whole} of {self.later} whole, {self.lost} of {self.held} ids lost"
        )


def do_task(agent: Agent, model: Path, log: Path | None = None) -> Done:
    """Let an agent do its task. `log`: a folder for prompts and what was printed."""
    with tempfile.TemporaryDirectory(prefix="agents-") as temporary:
        root = Path(temporary)
        folder, home = root / "work", root / "home"
        folder.mkdir()
        home.mkdir()
        script = Script(agent.begin(folder), agent.mark, agent.step, agent.instead)
        servers = {"clock": {"command": sys.executable, "args": [str(_CLOCK), str(folder / "calls")]}}
        with scripted_engine(model, TEMPLATE, open_map(model), script) as engine:
            settings = f'[engine]\nkind = "url"\nurl = "{engine.url}"\n\n[tokens]\nmap = "{model}"\n'
            with serving_gateway(root / "gateway", servers, settings=settings) as gateway:
                printed, faults = _run(agent.start(gateway.url), folder, home)
                report = _report(gateway.admin)
        if log is not None:
            _keep(log, engine, printed, report)
        prompts = [prompt for prompt in engine.prompts if script.is_task(prompt)]
        faults += [f"the last prompt has no {text!r}" for text in agent.results if text not in (prompts or [""])[-1]]
        return _judged(agent, len(prompts), report, [*faults, *agent.faults(folder, printed)])


def _run(started: Started, folder: Path, home: Path) -> tuple[str, list[str]]:
    """Give what it printed, and what is wrong with how it ended."""
    for name, text in started.files.items():
        path = home / name.removeprefix("~/") if name.startswith("~/") else folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    # Nothing of this machine's: no keys, no settings, no other gateway.
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **started.env}
    try:
        done = subprocess.run(
            started.command, cwd=folder, env=env, capture_output=True, text=True, timeout=_TIME, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return str(error.stdout), [f"it did not end in {_TIME:g} s"]
    printed = done.stderr + done.stdout
    faults = [] if done.returncode == 0 else [f"it ended with {done.returncode}"]
    faults += [f"it printed: {line.strip()}" for line in printed.splitlines() if _COMPLAINT.search(line)]
    return printed, faults


def _report(admin: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{admin}/status") as answer:
        return json.load(answer)


def _judged(agent: Agent, generations: int, report: dict[str, Any], faults: list[str]) -> Done:
    prompts: list[dict[str, Any]] = report["prompts"]
    found = list(faults)
    if generations < agent.requests:
        found.append(f"there were {generations} generations, not {agent.requests}")
    if agent.continues and len(prompts) < agent.requests - 1:
        found.append(f"only {len(prompts)} requests carried the conversation on")
    lost = sum(each["lost"] for each in prompts)
    if not agent.rewrites:
        found += [f"{each['lost']} ids lost: {each['reason']}" for each in prompts if each["lost"]]
    whole = sum(not each["lost"] for each in prompts)
    return Done(generations, len(prompts), whole, sum(each["held"] for each in prompts), lost, tuple(found))


def _keep(folder: Path, engine: ScriptedEngine, printed: str, report: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, prompt in enumerate(engine.prompts):
        (folder / f"prompt-{number}.txt").write_text(prompt, encoding="utf-8")
    (folder / "printed.txt").write_text(printed, encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
