"""Claude Code and Codex that sum their conversation up themselves: by a command, and at a limit.

The request for the summary carries the conversation on, so the engine must find all that it had held. What follows is
another conversation, with the summary in it. It starts nothing; `running.py` does.
"""

import shlex
from dataclasses import replace
from typing import Final

from tests.agents.agents import CODING
from tests.agents.task import Agent, Started

_MARK: Final = "A greeting was mended"
_SUMMARY: Final = f"<analysis>\nOne file.\n</analysis>\n\n<summary>\n{_MARK} in greet.py.\n</summary>"
_SAID: Final = "It still says hello."


def _claude(url: str) -> Started:
    started = CODING["claude_code"].start(url)
    program, _, _, *tools = started.command
    steps = ("Mend the greeting.", "/compact", "Does it say hello?")
    more = ([], ["-c"], ["-c"])
    lines = [shlex.join([program, *each, "-p", step, *tools]) for step, each in zip(steps, more, strict=True)]
    return replace(started, command=["sh", "-ec", "\n".join(lines)])


COMPACTING: Final[dict[str, Agent]] = {
    "claude_code_compact": replace(
        CODING["claude_code"],
        words="Claude Code, /compact",
        start=_claude,
        instead=((_MARK, _SAID), ("create a detailed summary", _SUMMARY)),
        requests=7,
    ),
}
