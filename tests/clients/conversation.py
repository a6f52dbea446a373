"""One conversation of a client: its program runs, what passes is recorded, and judged.

The client is told by its environment where the server is and what to ask. Each question says what may be called at its
first step (`first`: a name, or a word of OpenAI's `tool_choice`) and behind a result (`then`); a small model seldom
calls by itself.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gateway.engine.embedded.packaged_model import packaged_model
from tests.clients.judgement import GATEWAY_S, OWN, Judgement, of_engine, of_gateway
from tests.clients.recorder import Exchange, Request, recording

PLAN: Final = (
    {"question": "How is the weather in Zürich at 408.0 m?", "first": OWN, "then": "none"},
    {"question": "And in São Paulo, and what time is it there?", "first": "required", "then": "auto"},
    {"question": "What time is it in Tokyo?", "first": GATEWAY_S, "then": "auto"},
    {"question": "And up on a hill of 1.50e3 m near Kraków?", "first": OWN, "then": "auto"},
    {"question": "Thanks! Now say “bye”.", "first": "auto", "then": "none"},
    {"question": "Once more for Zürich, please.", "first": OWN, "then": "none"},
    {"question": "And for Kraków and São Paulo in °F?", "first": "required", "then": "none"},
)
_TESTS: Final = Path(__file__).parents[1]
_TIME: Final = 900.0
"""Ends a client that hangs; on idle cores each takes less than a minute."""


def through_gateway(
    command: Sequence[str], url: str, calls: Path, steps: int = len(PLAN), **sampling: float
) -> Judgement:
    """Hold `steps` of the conversation through the gateway at `url`.

    Its tool adds a line to `calls` each time it runs.
    """

    def sent(request: Request) -> Request:
        return {**request, **sampling, "return_token_ids": True}

    before = len(_lines(calls))
    exchanges, ran, faults = _held(command, url, PLAN[:steps], sent)
    shown = [call for each in exchanges for call in _calls(each.answer)]
    if not faults and len(shown) != ran:
        faults.append(f"the client was shown {len(shown)} calls, and ran {ran}")
    return _with(of_gateway(exchanges, len(_lines(calls)) - before), faults)


def through_engine(command: Sequence[str], url: str, **sampling: float) -> Judgement:
    """Hold it through the llama.cpp server at `url`, which has no tool of its own.

    That server lets a model that must call write what it likes before, and this one never gets to its call: the marker
    is written for it, as the beginning of its answer.
    """

    def sent(request: Request) -> Request:
        if request.get("tool_choice") in (None, "auto", "none"):
            return {**request, **sampling}
        begun = {"role": "assistant", "content": "<tool_call>\n"}
        return {**request, **sampling, "tool_choice": "required", "messages": [*request["messages"], begun]}

    plan = [{**step, "first": "auto" if step["first"] == GATEWAY_S else step["first"]} for step in PLAN]
    exchanges, _, faults = _held(command, url, plan, sent)
    return _with(of_engine(exchanges), faults)


@contextmanager
def template_server(template: str) -> Iterator[str]:
    """Run llama.cpp's server with the packaged model and one of the templates of `third_party`; give its address."""
    program = [sys.executable, str(_TESTS / "template_server.py"), str(packaged_model())]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{_TESTS / 'third_party' / 'chat_templates' / template}.jinja\n")
        child.stdin.flush()
        try:
            yield child.stdout.readline().strip()
        finally:
            child.kill()


def _held(
    command: Sequence[str], url: str, plan: Sequence[dict[str, str]], sent: Callable[[Request], Request]
) -> tuple[list[Exchange], int, list[str]]:
    """Run the program; give what passed, how many calls it ran, and what is wrong with how it ended."""
    with recording(url, sent) as kept:
        env = {**os.environ, "OPENAI_BASE_URL": kept.url, "OPENAI_API_KEY": "none", "PLAN": json.dumps(plan)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_TIME, check=False)
    if done.returncode:
        return kept.exchanges, 0, [f"the program ended with {done.returncode}: {done.stderr[-2000:]}"]
    return kept.exchanges, json.loads(done.stdout)["ran"], []


def _calls(answer: dict[str, Any]) -> list[Any]:
    return answer["choices"][0]["message"].get("tool_calls") or [] if "choices" in answer else []


def _with(judgement: Judgement, faults: Sequence[str]) -> Judgement:
    return replace(judgement, faults=(*faults, *judgement.faults))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
