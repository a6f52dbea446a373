"""What an agent is given to do, what the model says meanwhile, and whether it was done.

A task turns an agent's names for its tools into turns of the model, and what it left behind into faults. It touches
nothing but files of its folder.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_BEFORE: Final = 'print("helo, Zürich")\n'
_AFTER: Final = 'print("hello, Zürich")\n'
_TITLE: Final = "Mend a greeting"
_ANY: Final = re.compile(r'"name": "\*(\w+)"')
_TURN: Final = "<|im_start|>assistant"


@dataclass(frozen=True, slots=True)
class Call:
    """A call, by the agent's own name for the tool."""

    name: str
    """With `*` before it: that of the tool in the prompt whose name ends so."""
    arguments: Mapping[str, Any]

    @property
    def text(self) -> str:
        """As a model of the family writes it (Hermes: Qwen 2.5 and others)."""
        written = json.dumps({"name": self.name, "arguments": self.arguments}, ensure_ascii=False)
        return f"<tool_call>\n{written}\n</tool_call>"


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model says at one step: words, and the calls behind them."""

    words: str = ""
    calls: tuple[Call, ...] = ()

    @property
    def text(self) -> str:
        """As the model writes it."""
        return "\n".join(filter(None, (self.words, *(call.text for call in self.calls))))


@dataclass(frozen=True, slots=True)
class Script:
    """What is said behind a prompt: the turn whose number the turns in the prompt give."""

    turns: Sequence[Turn]
    mark: str = ""
    """What a prompt of the task has, where the first turn has no call."""
    step: str = _TURN
    """What a prompt has once more for each turn that was said."""
    instead: Sequence[tuple[str, Turn]] = ()
    """Expressions for prompts that are no steps of the task, and what is said behind those; the first that fits."""

    def __call__(self, prompt: str) -> str:
        """Say the next turn, behind the last one that again; a title to whoever has not the tool of the first call."""
        if not self.is_task(prompt):
            return _TITLE
        for expression, turn in self.instead:
            if re.search(expression, prompt, re.DOTALL):
                return turn.text
        said = prompt.count(self.step) - (self.step == _TURN)
        text = self.turns[min(said, len(self.turns) - 1)].text
        return _ANY.sub(lambda found: re.findall(rf'"name": "[^"]*{found[1]}"', prompt)[0], text)

    def is_task(self, prompt: str) -> bool:
        """Whether a prompt is one of the task, and not of a title for it."""
        first = self.turns[0]
        return (f'"name": "{first.calls[0].name}"' if first.calls else self.mark) in prompt


@dataclass(frozen=True, slots=True)
class Started:
    """What starts an agent."""

    command: Sequence[str]
    env: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts of its settings, by their paths below its home (`~/`) or the folder."""


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent and what it does."""

    words: str
    """Its name for people."""
    version: str
    api: str
    start: Callable[[str], Started]
    """What starts it, for a gateway's address."""
    begin: Callable[[Path], Sequence[Turn]]
    """Puts what it needs into a folder; gives what the model says."""
    faults: Callable[[Path, str], list[str]]
    """What is wrong with what it left in the folder and printed."""
    requests: int
    """Those that its task takes, at least."""
    results: tuple[str, ...] = ()
    """Texts of tools' results that the last prompt must have."""
    rewrites: str = ""
    """How it changes its history, if it does: what it has changed is processed again."""
    mark: str = ""
    """As in `Script`; so is `step`."""
    step: str = _TURN
    instead: Sequence[tuple[str, Turn]] = ()
    """As in `Script`."""
    continues: bool = True
    """Whether each of its requests carries on the one before."""


def greeting(folder: Path) -> Path:
    """Put the file that is to be mended into a folder."""
    file = folder / "greet.py"
    file.write_text(_BEFORE, encoding="utf-8")
    return file


def is_mended(folder: Path, _printed: str) -> list[str]:
    """Give what is wrong with the file."""
    found = (folder / "greet.py").read_text(encoding="utf-8")
    return [] if found == _AFTER else [f"the file holds {found!r}"]
