"""The token streams that the wire is measured with: recorded ones, and the reference's synthetic ones.

`corpora.json` holds what `record` wrote: ids of SmolLM2's map. The synthetic streams are made here from a fixed seed,
by the recipes of the reference's bench. The dictionaries were trained on texts that none of the streams contain.
"""

import json
import random
from functools import cache
from pathlib import Path
from typing import Final

from leaf_sdk.wire import Dictionary, Format

FOLDER: Final = Path(__file__).parent
RECORDED: Final = ("greedy", "tool", "prose", "code")
SYNTHETIC: Final = ("uniform", "comma", "fifty", "cyclic")
_VOCABULARY: Final = 49_152
_LONGEST: Final = 4096


@cache
def stream(name: str) -> tuple[int, ...]:
    """Return the ids of a stream, as many as it has: 4,096, or 1,632 in the tool conversation."""
    if name in SYNTHETIC:
        return _synthetic(name)
    return tuple(json.loads((FOLDER / "corpora.json").read_text(encoding="utf-8"))[name])


@cache
def dictionary(form: Format) -> Dictionary:
    """Return the zstd dictionary of a format."""
    return Dictionary((FOLDER / "dictionaries" / f"{form}.zstd").read_bytes())


def _synthetic(name: str) -> tuple[int, ...]:
    chance = random.Random(name)
    fifty = [chance.randrange(_VOCABULARY) for _ in range(50)]
    ids = range(_LONGEST)
    match name:
        case "uniform":
            return tuple(chance.randrange(_VOCABULARY) for _ in ids)
        case "comma":  # every other id is the comma
            return tuple(28 if number % 2 else chance.randrange(_VOCABULARY) for number in ids)
        case "fifty":
            return tuple(chance.choice(fifty) for _ in ids)
        case _:
            return tuple(fifty[number % len(fifty)] for number in ids)
