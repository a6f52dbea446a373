"""What token maps cost: `python -m bench.maps`, after `make tokenizers`.

Four questions. How long does it take until a map of 150,000 tokens has encoded its first text, and until its compiled
form has decoded its first ids? How does encoding compare with the library alone? How many ids does a stream decode per
second? How long does it take to build a map? With the tokenizers of real models. Method: README.md.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from time import process_time
from typing import Any

from bench.record import summary, write
from leaf_sdk.testing.samples import CODE, PROSE
from leaf_sdk.vocab import Detokenizer, TokenMap, build_map, compile_map, load_map
from leaf_sdk.vocab.tiktoken_file import CUTS

FOLDER = Path(__file__).parents[1] / ".tools" / "tokenizers"
ROUNDS = 7
OPENED = "qwen.tiktoken"
"""The map of 151,644 ids whose opening is timed; it normalizes nothing, so that decoding is enough to verify."""

ENCODED = ("qwen3.json", "llama3_1.json", "deepseek_v3.json", "gemma3.json", "llama2.json")
SENTENCEPIECE = "mistral_instruct_tokenizer_240323.model.v3"
SIZES = (300, 3_000, 30_000)
"""Characters in a text."""

BATCHES = (1, 16, 1_000)
"""Ids that a stream delivers at a time."""

# Run in processes of their own: what a server pays at its start, including the import of the library.
_OPEN = """
import sys, time
from pathlib import Path
from leaf_sdk.vocab import load_map, load_compiled
from leaf_sdk.leaf.verify import check_ids
map_path, compiled_path, map_id = sys.argv[1:4]
ids = [int(number) for number in sys.argv[4].split(",")]
read = lambda: load_map(Path(map_path).read_bytes(), map_id)
began, cpu = time.perf_counter(), time.process_time()
if sys.argv[5] == "map":
    read().encode("Hello, world")
elif sys.argv[5] == "decode":
    load_compiled(Path(compiled_path).read_bytes(), map_id, read).decode(ids)
else:
    assert check_ids(load_compiled(Path(compiled_path).read_bytes(), map_id, read), "Hello, world", ids) is None
print(time.perf_counter() - began, time.process_time() - cpu)
"""


def map_of(name: str) -> bytes:
    """Return the bytes of the map of a fetched tokenizer."""
    special = {"<|endoftext|>": 151_643} if name.endswith(".tiktoken") else None
    cut = CUTS["qwen"] if special else None
    return build_map((FOLDER / name).read_bytes(), cut=cut, special_tokens=special)


def measure_opening() -> dict[str, Any]:
    """Time the first encode from a map's bytes, and the first decode and verify from its compiled form."""
    data = map_of(OPENED)
    token_map = load_map(data)
    compiled = compile_map(token_map) or b""
    ids = ",".join(map(str, token_map.encode("Hello, world")))
    variants = {
        "first encode, from the map": "map",
        "first decode, compiled": "decode",
        "first verify, compiled": "verify",
    }
    wall: dict[str, list[float]] = {name: [] for name in variants}
    cpu: dict[str, list[float]] = {name: [] for name in variants}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "map.json", Path(folder) / "map.compiled"]
        for path, content in zip(paths, (data, compiled), strict=True):
            path.write_bytes(content)
        for _ in range(ROUNDS):
            for name, verb in variants.items():
                command = [sys.executable, "-c", _OPEN, *map(str, paths), token_map.map_id, ids, verb]
                spent = subprocess.check_output(command, text=True).split()
                wall[name].append(float(spent[0]) * 1e3)
                cpu[name].append(float(spent[1]) * 1e3)
    return {
        "ids": len(token_map),
        "map_bytes": len(data),
        "compiled_bytes": len(compiled),
        "wall_ms": {name: summary(samples) for name, samples in wall.items()},
        "cpu_ms": {name: summary(samples) for name, samples in cpu.items()},
    }


def measure_encoding() -> dict[str, Any]:
    """Encode the same texts with a map and with the library of its tokenizer, in turns."""
    from tokenizers import Tokenizer

    results: dict[str, Any] = {}
    for name in ENCODED:
        reference = Tokenizer.from_file(str(FOLDER / name))
        results[name] = _against(
            load_map(map_of(name)), lambda text, own=reference: own.encode(text, add_special_tokens=False).ids
        )
    results[SENTENCEPIECE] = _against(load_map(map_of(SENTENCEPIECE)), _sentencepiece(FOLDER / SENTENCEPIECE))
    return results


def _sentencepiece(path: Path) -> Callable[[str], list[int]]:
    import sentencepiece  # pyright: ignore[reportMissingTypeStubs]

    return sentencepiece.SentencePieceProcessor(model_file=str(path)).encode


def _against(token_map: TokenMap, reference: Callable[[str], list[int]]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for kind, lines in {"prose": PROSE, "code": CODE, "new words": ()}.items():
        for size in SIZES:
            rounds = [_texts(lines, size, number) for number in range(ROUNDS if kind == "new words" else 1)]
            if any(token_map.encode(text) != reference(text) for text in _texts(lines, size, ROUNDS)):
                raise SystemExit(f"{token_map.id!r} gives other ids than its library; nothing was measured")
            ours: list[float] = []
            theirs: list[float] = []
            for number in range(ROUNDS):
                texts = rounds[number % len(rounds)]
                ours.append(_seconds(token_map.encode, texts) / len(texts) * 1e6)
                theirs.append(_seconds(reference, texts) / len(texts) * 1e6)
            mine, own = summary(ours), summary(theirs)
            results[f"{kind}, {size} characters"] = {
                "us_by_the_map": mine,
                "us_by_the_library": own,
                "ratio_of_medians": round(mine["median"] / own["median"], 3),
            }
    return results


def _seconds(encode: Callable[[str], object], texts: Sequence[str]) -> float:
    began = process_time()
    for text in texts:
        encode(text)
    return process_time() - began


def _texts(lines: Sequence[str], size: int, number: int) -> list[str]:
    count = max(1, SIZES[-1] // size)
    return [_text(lines, size, seed) for seed in range(number * count, (number + 1) * count)]


def _text(lines: Sequence[str], size: int, seed: int) -> str:
    """Return the words of the lines in random order; without lines, words that nobody has seen before."""
    rng = random.Random(seed)
    words = [word for line in lines for word in line.split(" ")]
    words = words or ["".join(rng.choices(ascii_lowercase, k=rng.randrange(3, 11))) for _ in range(size)]
    text = ""
    while len(text) < size:
        text += " ".join(rng.choices(words, k=50)) + " "
    return text[:size]


def measure_decoding() -> dict[str, Any]:
    """Decode a stream of a million ids, in batches; and all of them at once, as bytes."""
    token_map = load_map(map_of(OPENED))
    rng = random.Random(1)
    known = [token_id for seed in range(50) for token_id in token_map.encode(_text(PROSE, 3_000, seed))]
    ids = rng.choices(known, k=1_000_000)
    rates: dict[str, list[float]] = {f"stream, {size} at a time": [] for size in BATCHES} | {"bytes, at once": []}
    token_map.decode(ids[:10])
    for _ in range(ROUNDS):
        for size in BATCHES:
            some = ids if size > 1 else ids[: len(ids) // 5]
            batches = [some[at : at + size] for at in range(0, len(some), size)]
            feed = Detokenizer(token_map).feed
            began = process_time()
            for batch in batches:
                feed(batch)
            rates[f"stream, {size} at a time"].append(len(some) / (process_time() - began) / 1e6)
        began = process_time()
        token_map.decode_bytes(ids)
        rates["bytes, at once"].append(len(ids) / (process_time() - began) / 1e6)
    return {name: summary(samples) for name, samples in rates.items()}


def measure_building() -> dict[str, Any]:
    """Time building a map from each kind of file."""
    times: dict[str, list[float]] = {}
    for name in (OPENED, "gemma3.json", SENTENCEPIECE, "tekken_240911.json", "qwen.tiktoken"):
        for _ in range(3):
            began = process_time()
            map_of(name)
            times.setdefault(name, []).append(process_time() - began)
    return {name: summary(samples) for name, samples in times.items()}


def main() -> None:
    """Measure, write the results, and print a summary."""
    if not (FOLDER / OPENED).is_file():
        raise SystemExit(f"{OPENED!r} is not in {str(FOLDER)!r}; run: make tokenizers")
    results: Mapping[str, Any] = {
        "opening": measure_opening(),
        "encoding": measure_encoding(),
        "million_ids_per_second": measure_decoding(),
        "seconds_to_build": measure_building(),
    }
    path = write("maps", ("tokenizers", "sentencepiece"), results)
    for name, spent in results["opening"]["wall_ms"].items():
        print(f"{name}: {spent['median']} ms")
    for name, texts in results["encoding"].items():
        print(f"{name}: " + ", ".join(f"{each['ratio_of_medians']}" for each in texts.values()))
    print(json.dumps({name: rate["median"] for name, rate in results["million_ids_per_second"].items()}))
    print(path.relative_to(Path(__file__).parents[1]))


if __name__ == "__main__":
    main()
