"""What is asked: conversations drawn from a seed, the same for every server and in every run.

Turns a number into a conversation. Prompts are common English words in random order, nearly always a token each, so
that lengths are about right and nothing of one conversation is found in another; the result says how many tokens a
server counted. Pure; `trace.py` provides recorded conversations instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

from codec_bench.lengths import Lengths

Message = Mapping[str, Any]
"""A message of OpenAI's API."""

_TEXT: Final = """
about after again air all also animal another answer around away back because before between big book both boy but car
change children city close come country cut day different do door down earth eat end even every eye face far father
find first food form found four friend garden get give go good great group grow hand hard have head help high home
house idea important keep kind know land large last late learn leave left letter life light like line list little live
long look made make man many mean might mile morning most mother mountain move much music name near need never new
next night number often old only open other our out over own page paper part people picture place plant play point
read real right river road run same say school sea second see seem sentence set ship show side small song soon sound
start state still stop story street study table take talk tell thing think time town tree try turn under until walk
want watch water way well white wind wood word work world write year young
"""
_WORDS: Final = tuple(_TEXT.split())
_CLOSING: Final = " Write a long story with these words."
_CLOSING_TOKENS: Final = 8


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user adds to a conversation, and how long the answer may be."""

    messages: tuple[Message, ...]
    answer_tokens: int
    ids: tuple[int, ...] = ()
    """The prompt as token ids, if it has no messages."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation, turn by turn."""

    number: int
    turns: tuple[Turn, ...]
    at: float | None = None
    """Seconds after the start at which it began, if it was recorded with a time."""


class Workload(Protocol):
    """Where conversations come from."""

    @property
    def turns(self) -> int:
        """Turns that a conversation has at most."""
        ...

    def conversation(self, number: int) -> Conversation:
        """The conversation with this number; those below 0 are for the warm-up."""
        ...

    def described(self) -> dict[str, Any]:
        """The workload as the result shows it."""
        ...


@dataclass(frozen=True, slots=True)
class Drawn:
    """Conversations drawn from a seed."""

    seed: int
    prompt: Lengths
    answer: Lengths
    turns: int = 1

    def conversation(self, number: int) -> Conversation:
        """The conversation with this number, always the same for the same seed."""
        random = Random(f"{self.seed}/{number}")  # noqa: S311 - nothing secret is drawn
        return Conversation(number, tuple(self._turn(random) for _ in range(self.turns)))

    def described(self) -> dict[str, Any]:
        """The distributions as they were written."""
        lengths = {"prompt_tokens": str(self.prompt), "answer_tokens": str(self.answer)}
        return {"seed": self.seed, "turns": self.turns, **lengths}

    def _turn(self, random: Random) -> Turn:
        words = prompt_text(random, self.prompt.draw(random))
        return Turn(({"role": "user", "content": words},), self.answer.draw(random))


def prompt_text(random: Random, tokens: int) -> str:
    """A text of about `tokens` tokens, which asks for a long answer if there is room for that."""
    asks = tokens > 2 * _CLOSING_TOKENS
    words = random.choices(_WORDS, k=tokens - _CLOSING_TOKENS if asks else tokens)
    return " ".join(words) + ("." + _CLOSING if asks else "")
