"""Claude Code and Codex that sum their conversation up themselves, and go on behind the summary.

The request for the summary carries the conversation on, so the engine must find all that it had held. What follows is
another conversation with the same preamble and the summary; the tools that were found before can be called in it. It
starts nothing; `running.py` does.
"""

import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.agents.agents import CODING
from tests.agents.task import Agent, Call, Started, Turn
from tests.agents.tool_search import LATER, SEARCHING, SERVER_NAME

_MARK: Final = "A greeting was mended"
_CLAUDE: Final = f"<analysis>\nOne file.\n</analysis>\n\n<summary>\n{_MARK} in greet.py.\n</summary>"
_SAID: Final = Turn("It still says hello.")
_LIMITS: Final = {"codex": 9000, "codex_tool_search": 12_500}
"""Tokens: fewer than Codex sends before the first word, or so many that what it finds behind its summary has room."""


def _claude(start: Callable[[str], Started]) -> Callable[[str], Started]:
    """The same conversation, then its compaction, and a question behind it."""

    def started(url: str) -> Started:
        first = start(url)
        program, _, _, *more = first.command
        lines = [first.command, *([program, "-c", "-p", words, *more] for words in ("/compact", "Does it say hello?"))]
        return replace(first, command=["sh", "-ec", "\n".join(map(shlex.join, lines))])

    return started


def _codex(start: Callable[[str], Started], most: int) -> Callable[[str], Started]:
    """The same conversation, and a question for which it is too long."""

    def started(url: str) -> Started:
        first = start(url)
        *more, _ = first.command
        limit = ("-c", f"model_auto_compact_token_limit={most}")
        lines = [first.command, [*more, *limit, "resume", "--last", "Does it say hello?"]]
        return replace(first, command=["sh", "-ec", "\n".join(map(shlex.join, lines))])

    return started


_CODEX: Final = ("CONTEXT CHECKPOINT COMPACTION", Turn(f"{_MARK} in greet.py."))
_CALL: Final = Turn("", (Call(f"mcp__{SERVER_NAME}__{LATER}", {"polite": True}),))
_INSTEAD: Final = {
    "claude_code": ((_MARK, _SAID), ("create a detailed summary", Turn(_CLAUDE))),
    "claude_code_tool_search": (
        (f"{_MARK}.*{LATER}: ok", _SAID),
        (_MARK, _CALL),
        ("create a detailed summary", Turn(_CLAUDE)),
    ),
    "codex": ((_MARK, _SAID), _CODEX),
    # Codex keeps no definitions behind its summary: the model searches again.
    "codex_tool_search": (
        _CODEX,
        (f"{_MARK}.*{LATER}: ok", _SAID),
        (f"{_MARK}.*{LATER}", _CALL),
        (_MARK, Turn("", (Call("tool_search", {"query": "greeting in Welsh", "limit": 1}),))),
    ),
}


def _compacting(name: str, more: int) -> Agent:
    """`more`: requests besides those of its task."""
    agent = CODING.get(name) or SEARCHING[name]
    start = _codex(agent.start, _LIMITS[name]) if name in _LIMITS else _claude(agent.start)
    results = (_MARK, f"{LATER}: ok") if name in SEARCHING else (_MARK,)
    told = {"words": f"{agent.words}, compaction", "results": results, "requests": agent.requests + more}
    return replace(agent, start=start, instead=_INSTEAD[name], **told)


# Behind Codex's summary stands no answer of the model: the first request there carries nothing on.
COMPACTING: Final = {
    "claude_code_compact": _compacting("claude_code", 2),
    "claude_code_tool_search_compact": _compacting("claude_code_tool_search", 3),
    "codex_compact": _compacting("codex", 1),
    "codex_tool_search_compact": _compacting("codex_tool_search", 3),
}
"""What is found again of each, and of the tools that it had found."""
