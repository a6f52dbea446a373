"""The scenes of the reference as a page, `docs/reference-figures.md`. Pure: results in, text out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from bench.reference import agents, lengths, streams, tools
from bench.reference.row import Results, Row, Scene

NAMES: Final = ("wire", "lengths", "path", "leaf", "toolcalls", "maps", "mcp")
"""Results that the page is made of."""

_HEAD: Final = """# Beside the Codec reference

The protocol that this gateway speaks comes with benchmarks of [its own project](https://github.com/wdunn001/Codec).
Here stands each of their scenes as they define it, their figures as they state them, and ours from the committed
measurements of this repository. `python -m bench.reference` makes the page; what is better or worse is computed, and a
test compares the page with `bench/results`. [How ours are measured](../bench/README.md); some of the scenes can be
[asked of any server](bench.md#scenes-of-the-reference).

Machines, models and engines differ: theirs is Qwen2.5-0.5B on a GPU under SGLang, vLLM and llama.cpp, unless it says
otherwise; ours is SmolLM2 under llama.cpp on two cores, and replays of recorded ids. So bytes can be compared, CPU
with care, and times of whole answers hardly. Their streams are compressed without a flush, which makes them smaller
and holds every token to the end; ours are measured so, and also with the flush that the gateway makes. A factor says
how far the two figures are apart: “worse, 1.5×” is half as many bytes again, or half as much time.
"""
_TAIL: Final = """## What else they measure

Nothing stands here beside their figures of latents and of energy, which are not built; of six clients in six languages
that agree (ours are tested with the `codecai` library alone); of dictionaries by the size of a stream; and of live
searches, which are the search engine's time.
"""


def scenes(results: Results) -> list[Scene]:
    """Give all scenes in the order of the page."""
    return [*streams.scenes(results), *lengths.scenes(results), *agents.scenes(results), *tools.scenes(results)]


def page(results: Results) -> str:
    """Give the whole page."""
    found = scenes(results)
    parts = (_HEAD, *_overview(found), *(line for scene in found for line in _scene(scene)), _TAIL)
    return "\n".join(parts).rstrip() + "\n"


def _overview(found: Sequence[Scene]) -> Iterator[str]:
    yield from (
        "## Better or worse",
        "",
        "| scene | better | alike | worse | no figure of one side |",
        "|---|---:|---:|---:|---:|",
    )
    for scene in found:
        count = Counter(row.verdict for row in scene.rows)
        cells = " | ".join(str(count[verdict]) for verdict in ("better", "alike", "worse", ""))
        yield f"| [{scene.title}](#{_anchor(scene.title)}) | {cells} |"
    yield ""


def _scene(scene: Scene) -> Iterator[str]:
    yield from (f"## {scene.title}", "", scene.definition, f"Stated in {scene.stated}.", "")
    yield from ("| | theirs | ours | ours is |", "|---|---:|---:|---|")
    yield from map(Row.line, scene.rows)
    yield from ("", scene.why, "")


def _anchor(title: str) -> str:
    return "".join(each for each in title.lower().replace(" ", "-") if each.isalnum() or each == "-")
