"""The scenes of the reference as a page, `docs/reference-figures.md`. Pure: results in, text out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from bench.reference import agents, codings, lengths, streams, tools
from bench.reference.row import Results, Row, Scene

NAMES: Final = ("wire", "lengths", "path", "leaf", "toolcalls", "maps", "mcp", "mcp_frames")
"""Results that the page is made from."""

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
_TAIL: Final = """## Stated, not measured here

What else they state with a figure, and why no row stands beside it:

- Latents (3.9 times smaller) and energy: not built.
- 24 of 24 cells alike in six clients of six languages: ours are tested with the `codecai` library alone.
- Tokenizing in TypeScript, .NET and Java: no such clients here.
- A dictionary's 0.25 ms more for a stream, and 0.12 ms more to the first compressed byte; dictionaries of 4, 16 and
  64 KB (13.0, 15.7 and 14.6 % for msgpack): the time of a compressor alone is not measured here, and ours has one size.
- 5 ms instead of 75 ms for a chain of five agents, and 470 ms saved where a call is found in the engine: sums of other
  figures, not measurements.
- Times through their MetaMCP, 9 to 27 ms a call: they have its network and its servers in them. What calls take here
  is [measured beside other gateways](mcp-speed.md).
- 4.7 times smaller than JSON with gzip for MCP by a dictionary, which saves 78.8 % beside zstd without one: answers of
  MCP are not compressed here.
- The bytes of vLLM and llama.cpp at 64 and 512 tokens, and earlier runs of the same grids: what the model wrote
  decides, and their 2,048 tokens stand above.
- 4.6 KB for a result with its ids in a block of their own: that form went with their version 0.3.2.
- 23 of 23 texts split alike by regular expression and by program: not a speed; ours are compared with the tokenizers
  themselves ([maps](maps.md)).
- The CPU time of the translator, 8.2 ms instead of 10.0 ms: not built.
"""


def scenes(results: Results) -> list[Scene]:
    """Return all scenes in the order of the page."""
    return [scene for part in (streams, codings, lengths, agents, tools) for scene in part.scenes(results)]


def page(results: Results) -> str:
    """Return the whole page."""
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
