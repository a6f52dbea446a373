"""What token ids beside a text cost and save, in bytes and in CPU: `python -m bench.leaf`.

Three questions. How many bytes does a tool result take plain, as a leaf and packed, each as it is and gzipped whole?
What does each side pay: the tool that writes ids, the gateway that reads and checks them, the gateway that tokenizes
instead? And what does a precached template cost compared with tokenizing its text? All in this process, under SmolLM2's
map. Method: README.md.
"""

import gzip
import json
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import process_time
from typing import Any

from bench.library import library_of
from bench.record import summary, write
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk import (
    CodecTool,
    CodecToolCall,
    Fragments,
    FragmentText,
    Manifest,
    MetaTokenizer,
    ModelBinding,
    TokenMap,
    check_ids,
    fill,
    open_map,
    precache,
    read_codec_meta,
    wrap_tool_call,
)

SIZES = (30, 300, 3_000, 30_000)
ROUNDS = 9
_SAMPLE = 0.02
"""Seconds of CPU that every sample takes at least."""
_FORMS = ("plain", "leaf", "leaf packed")
SENTENCE = "The time in {zone} is {time} on {day}, {date} (UTC{offset})."
SLOTS = {"zone": "Europe/Paris", "time": "14:37", "day": "Saturday", "date": "2026-11-21", "offset": "+01:00"}

Work = Callable[[], object]


def prose() -> str:
    """Return the text that is measured: the repository's own hand-written documents, one after the other."""
    folder = Path(__file__).parents[1]
    names = ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/mcp-clients.md", "docs/openai-apps.md"]
    names += sorted(f"docs/adr/{path.name}" for path in folder.glob("docs/adr/*.md"))
    return "\n\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def message(result: Mapping[str, Any]) -> bytes:
    """Return the whole JSON-RPC answer as it is sent."""
    fields = {"jsonrpc": "2.0", "id": 7, "result": result}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def measure_bytes(meta: MetaTokenizer, text: str) -> dict[str, Any]:
    """Count the bytes of one answer in every form."""
    plain = {"content": [{"type": "text", "text": text}]}
    forms = {
        "plain": plain,
        "leaf": wrap_tool_call(plain, meta),
        "leaf packed": wrap_tool_call(plain, meta, packed=True),
    }
    return {
        name: {"bytes": len(message(result)), "gzip": len(gzip.compress(message(result), 6, mtime=0))}
        for name, result in forms.items()
    }


def measure_cpu(meta: MetaTokenizer, library: Callable[[str], list[int]], text: str) -> dict[str, Any]:
    """Time both sides of one answer. `library`: encodes with `tokenizers` alone."""
    token_map = meta.token_map
    plain = {"content": [{"type": "text", "text": text}]}
    shapes = {"plain": plain, "leaf": wrap_tool_call(plain, meta), "packed": wrap_tool_call(plain, meta, packed=True)}
    wire = {name: message(result) for name, result in shapes.items()}
    read = {name: json.loads(data)["result"] for name, data in wire.items()}
    # As they arrive: made one after the other by a JSON parser, so they lie together in memory.
    ids = json.loads(json.dumps(meta.encode(text)))
    if library(text) != ids:
        sys.exit("the library gives other ids than the map; nothing was measured")

    def gateway(name: str, level: Any) -> bool:
        leaf = read_codec_meta(json.loads(wire[name])["result"], meta.map_id)[0]
        return check_ids(token_map, leaf.text, leaf.ids or (), level) is None

    return timed(
        {
            "tool, plain: write": lambda: message(plain),
            "tool, leaf: tokenize and write": lambda: message(wrap_tool_call(plain, meta)),
            "tool, packed: tokenize and write": lambda: message(wrap_tool_call(plain, meta, packed=True)),
            "gateway, shim: parse and tokenize": lambda: token_map.encode(
                json.loads(wire["plain"])["result"]["content"][0]["text"]
            ),
            "gateway, leaf: parse, read, verify": lambda: gateway("leaf", "verify"),
            "gateway, leaf: parse, read, trust": lambda: gateway("leaf", "trust"),
            "gateway, packed: parse, read, trust": lambda: gateway("packed", "trust"),
            "tokenize": lambda: token_map.encode(text),
            "tokenize with `tokenizers` alone": lambda: library(text),
            "read": lambda: read_codec_meta(read["leaf"], meta.map_id),
            "trust": lambda: check_ids(token_map, text, ids, "trust"),
            "verify": lambda: check_ids(token_map, text, ids, "verify"),
        }
    )


def measure_template(token_map: TokenMap) -> dict[str, Any]:
    """Time a precached template with slots that repeat, that change every minute, and that are always new."""
    fragments = Fragments(token_map, precache({"sentence": SENTENCE}, token_map))
    fragment, text = fragments["sentence"], FragmentText("sentence", SENTENCE).fill(SLOTS)
    chance = random.Random(1)
    fresh, others = (iter(lambda: _strange(chance), None) for _ in range(2))
    minutes = iter(lambda: SLOTS | {"time": f"{chance.randrange(10**6):06}"}, None)
    tool = _tool(fragments)
    written = json.dumps({"name": "now", "arguments": {"timezone": "Europe/Paris"}})
    call = CodecToolCall("now", 1, argument_ids=tuple(token_map.encode(written)), model_id="m")
    return timed(
        {
            "template, slots as before": lambda: fragment.ids(SLOTS),
            "template, one slot never seen": lambda: fragment.ids(next(minutes)),
            "template, all slots never seen": lambda: fragment.ids(next(fresh)),
            "the same, text filled and tokenized": lambda: token_map.encode(fragment.text(next(others))),
            "fill the text": lambda: fragment.text(SLOTS),
            "fill the text and tokenize it": lambda: token_map.encode(fragment.text(SLOTS)),
            "tokenize the text": lambda: token_map.encode(text),
            "whole call: argument ids in, response ids out": lambda: tool.call(call),
        }
    )


def _strange(chance: random.Random) -> dict[str, str]:
    return {slot: "".join(chance.choices("abcdefghijklmnop0123456789/-", k=len(said))) for slot, said in SLOTS.items()}


def _tool(fragments: Fragments) -> CodecTool:
    digest = fragments.token_map.map_id.removeprefix("sha256:")
    manifest = Manifest("now", "1", "Tell the time", {"type": "object"}, (ModelBinding("m", digest),))
    return CodecTool(manifest, lambda _arguments: fill("sentence", **SLOTS), {"m": fragments})


def timed(works: Mapping[str, Work]) -> dict[str, Any]:
    """Time pieces of work, in turns, in microseconds of CPU, in samples of at least `_SAMPLE` seconds."""
    counts = {name: _count(work) for name, work in works.items()}
    samples: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            began = process_time()
            for _ in range(counts[name]):
                work()
            samples[name].append((process_time() - began) / counts[name] * 1e6)
    return {name: summary(each) for name, each in samples.items()}


def _count(work: Work) -> int:
    """Find how often work must be repeated for a sample; what the first call builds is built here."""
    work()
    count = 1
    while True:
        began = process_time()
        for _ in range(count):
            work()
        if process_time() - began > _SAMPLE:
            return count
        count *= 2


def ratios(cpu: Mapping[str, Any]) -> dict[str, float]:
    """Return how many times cheaper reading ids is than making them, by medians."""
    median = {name: row["median"] for name, row in cpu.items()}
    shim = median["gateway, shim: parse and tokenize"]
    return {
        f"{name} / (read + {level})": round(median[row] / (median["read"] + median[level]), 2)
        for name, row in (("tokenize", "tokenize"), ("`tokenizers` alone", "tokenize with `tokenizers` alone"))
        for level in ("trust", "verify")
    } | {
        "shim / leaf trust, JSON included": round(shim / median["gateway, leaf: parse, read, trust"], 2),
        "shim / leaf verify, JSON included": round(shim / median["gateway, leaf: parse, read, verify"], 2),
    }


def markdown(results: Mapping[str, Any]) -> str:
    """Return the table of docs/tool-authors.md; a test compares the two."""
    sizes = results["characters"]
    lines = {f"{name}: bytes (gzipped)": [_cell(r["bytes"][name]) for r in sizes.values()] for name in _FORMS}
    first = sizes[str(SIZES[0])]
    for name in first["cpu_us"]:
        lines[f"{name}: µs"] = [f"{row['cpu_us'][name]['median']:,.1f}" for row in sizes.values()]
    lines |= {name: [f"{row['ratios'][name]:.1f}×" for row in sizes.values()] for name in first["ratios"]}
    rows = ["| characters | " + " | ".join(sizes) + " |", "|---|" + "---:|" * len(sizes)]
    rows += [f"| {name} | {' | '.join(cells)} |" for name, cells in lines.items()]
    template = [f"| {name} | {cpu['median']:.1f} |" for name, cpu in results["template_us"].items()]
    return "\n".join(
        [*rows, "", "| `The time in {zone} is {time} on …`, 70 characters | µs |", "|---|---:|", *template]
    )


def _cell(count: Mapping[str, int]) -> str:
    return f"{count['bytes']:,} ({count['gzip']:,})"


def main() -> None:
    """Measure, print tables, and write `results/leaf.json`."""
    token_map = open_map(packaged_model())
    meta = MetaTokenizer(token_map.map_id, token_map, token_map.encode)
    text = prose()
    if len(text) < SIZES[-1]:
        sys.exit(f"the documents hold {len(text)} characters, expected {SIZES[-1]}; nothing was measured")
    library = library_of(token_map)
    sizes: dict[str, Any] = {}
    for size in SIZES:
        cpu = measure_cpu(meta, library, text[:size])
        count = {"ids": len(meta.encode(text[:size])), **measure_bytes(meta, text[:size])}
        sizes[str(size)] = {"bytes": count, "cpu_us": cpu, "ratios": ratios(cpu)}
    template = measure_template(token_map)
    path = write("leaf", ("codec-leaf", "tokenizers", "msgpack"), {"characters": sizes, "template_us": template})
    _print(sizes, template)
    print(f"written: {path.relative_to(path.parents[2])}", file=sys.stderr)


def _print(sizes: Mapping[str, Any], template: Mapping[str, Any]) -> None:
    for size, row in sizes.items():
        print(f"{size} characters, {row['bytes']['ids']} ids")
        for name in _FORMS:
            print(f"  {name:44} {row['bytes'][name]['bytes']:9} B {row['bytes'][name]['gzip']:9} B gzip")
        for name, cpu in row["cpu_us"].items():
            print(f"  {name:44} {cpu['median']:9.1f} us")
        for name, ratio in row["ratios"].items():
            print(f"  {name:44} {ratio:9.1f} x")
    print(SENTENCE)
    for name, cpu in template.items():
        slack = f"({cpu['min']:.1f} to {cpu['max']:.1f})"
        print(f"  {name:48} {cpu['median']:7.1f} us {slack}")
    whole, cached = (template[name]["median"] for name in ("tokenize the text", "template, slots as before"))
    print(f"  tokenize / template: {whole / cached:.1f} x")


if __name__ == "__main__":
    main()
