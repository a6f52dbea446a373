"""The scenes of the reference as a page, `docs/reference-figures.md`. Pure: results in, text out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from bench.reference import agents, codings, lengths, streams, tools
from bench.reference.row import Results, Row, Scene

NAMES: Final = ("wire", "lengths", "path", "leaf", "toolcalls", "maps", "mcp", "mcp_answers")
"""Results that the page is made from."""

_HEAD: Final = """# Compared with the Codec reference

The protocol that this gateway speaks comes with benchmarks of [its own project](https://github.com/wdunn001/Codec).
This page has each of their scenes as they define it, with their figures as they state them, and ours from the committed
measurements of this repository. `python -m bench.reference` writes the page and computes what is better or worse; a
test compares the page with `bench/results`. [How ours are measured](../bench/README.md); some of the scenes can be
[run against any server](bench.md#scenes-of-the-reference).

Machines, models and engines differ: theirs is Qwen2.5-0.5B on a GPU under SGLang, vLLM and llama.cpp, unless stated
otherwise; ours is SmolLM2 under llama.cpp on two cores, and replays of recorded ids. So bytes can be compared, CPU
times with care, and times of whole answers hardly at all. Their streams are compressed without a flush, which makes
them smaller but holds every token back until the end; ours are measured that way, and also with the gateway's flushes.
A factor says how far apart the two figures are: “worse, 1.5×” means, for example, 1.5 times the bytes or 1.5 times the
time.
"""
_TAIL: Final = """## Stated, not measured here

Other figures that they state, and why there is no row for them:

- Latents (3.9 times smaller) and energy: not built.
- 24 of 24 cells equal in six clients of six languages: ours are tested with the `codecai` library alone.
- Tokenizing in TypeScript, .NET and Java: there are no such clients here.
- A dictionary's extra 0.25 ms for a stream, and extra 0.12 ms to the first compressed byte; dictionaries of 4, 16 and
  64 KB (13.0, 15.7 and 14.6 % for msgpack): the time of a compressor alone is not measured here, and our dictionaries
  have one size.
- 5 ms instead of 75 ms for a chain of five agents, and 470 ms saved if calls are found in the engine: these are sums of
  other figures, not measurements.
- Times through their MetaMCP, 9 to 27 ms per call: they include its network and its servers. What calls take here is
  [measured beside other gateways](mcp-speed.md).
- 4.7 times smaller than JSON with gzip for MCP with a dictionary, which saves 78.8 % compared with zstd without one:
  answers of MCP are not compressed here.
- The bytes of vLLM and llama.cpp at 64 and 512 tokens, and earlier runs of the same grids: they depend on what the
  model wrote, and the figures for 2,048 tokens are above.
- 4.6 KB for a result with its ids in a block of their own: that form was dropped with their version 0.3.2.
- 23 of 23 texts split alike by regular expression and by program: this is not a speed; ours are compared with the
  tokenizers themselves ([maps](maps.md)).
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
        "| scene | better | alike | worse | one side has no figure |",
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
