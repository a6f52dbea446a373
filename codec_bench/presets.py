"""Scenes of the Codec reference that any server can be measured with: by name, what is asked, the same in every run.

Each is a fixed workload: how long prompts and answers are, over which API, with how many turns. If answers have several
lengths, these take turns, so that each is asked for equally often; figures are then also given by length. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from codec_bench.exchange import Api, Asking
from codec_bench.lengths import Lengths
from codec_bench.workload import Conversation, Drawn, Turn

_LEAST_ID: Final = 1_000
_MOST_ID: Final = 9_999
"""Ids that are ordinary in every vocabulary in use: control tokens are at its beginning or at its end."""


@dataclass(frozen=True, slots=True)
class Preset:
    """What a scene asks."""

    means: str
    """What it asks for, in a few words."""
    prompt_tokens: int
    answers: tuple[int, ...]
    """Tokens of the answers, in the order in which they are asked for."""
    rounds: int
    """How often each length is asked for, unless an option says otherwise."""
    api: Api = "completions"
    tools: bool = False
    ids: bool = False
    """Whether prompts are ids instead of text."""
    seconds: float = 1800.0
    """Seconds of the whole run, unless an option says otherwise."""
    timeout: float = 300.0
    """Seconds of one request, unless an option says otherwise: for the longest answers of a small model on a CPU."""

    @property
    def requests(self) -> int:
        """Requests to each server, unless an option says otherwise."""
        return self.rounds * len(self.answers) * (2 if self.tools else 1)


PRESETS: Final[Mapping[str, Preset]] = {
    "formats": Preset("answers of 64 tokens; #msgpack and #protobuf behind an address ask for frames", 32, (64,), 6),
    "crossover": Preset(
        "answers of eight lengths from 16 to 2,048 tokens", 32, (16, 32, 64, 128, 256, 512, 1024, 2048), 3
    ),
    "long": Preset("answers of 4,096 and 8,192 tokens", 32, (4096, 8192), 1, seconds=3600, timeout=1800),
    "timed": Preset("answers of 64, 512 and 2,048 tokens", 32, (64, 512, 2048), 3),
    "handoff-text": Preset("prompts of about 1,024 tokens as text, answered with one token", 1024, (1,), 12),
    "handoff-ids": Preset("prompts of 1,024 token ids, answered with one token", 1024, (1,), 12, ids=True),
    "loop": Preset(
        "a call of a tool and the answer to its result, at most 64 tokens", 32, (64,), 6, "chat", tools=True
    ),
}


@dataclass(frozen=True, slots=True)
class Scene:
    """The conversations of a preset."""

    name: str
    seed: int

    @property
    def preset(self) -> Preset:
        """The preset of this name."""
        return PRESETS[self.name]

    @property
    def turns(self) -> int:
        """Turns of a conversation."""
        return 1

    @property
    def differs(self) -> bool:
        """Whether answers of several lengths are asked for."""
        return len(self.preset.answers) > 1

    def asking(self, asked: Asking) -> Asking:
        """How requests are made: as `asked`, but over the API of the scene, and with a tool if it has one."""
        return replace(asked, api=self.preset.api, tools=self.preset.tools)

    def conversation(self, number: int) -> Conversation:
        """The conversation with this number, always the same for the same seed; lengths take turns."""
        preset, answer = self.preset, self.answer_of(number)
        drawn = Drawn(self.seed, _fixed(preset.prompt_tokens), _fixed(answer)).conversation(number)
        if not preset.ids:
            return drawn
        chance = Random(f"{self.seed}/{number}/ids")  # noqa: S311 - nothing secret is drawn
        ids = tuple(chance.randint(_LEAST_ID, _MOST_ID) for _ in range(preset.prompt_tokens))
        return Conversation(number, (Turn((), answer, ids),))

    def answer_of(self, number: int) -> int:
        """How long the answers of a conversation may be."""
        # Conversations below 0, which are for the warm-up, take the first length.
        return self.preset.answers[max(0, number) % len(self.preset.answers)]

    def described(self) -> dict[str, Any]:
        """The scene as the result shows it."""
        preset = self.preset
        return {
            "seed": self.seed,
            "preset": self.name,
            "means": preset.means,
            "turns": self.turns,
            "prompt_tokens": str(preset.prompt_tokens),
            "answer_tokens": ", ".join(map(str, preset.answers)),
        }


def _fixed(tokens: int) -> Lengths:
    return Lengths(str(tokens), tokens, tokens)
