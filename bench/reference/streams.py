"""The reference's scenes of token streams: formats, frames, compression. Results in, scenes out."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bench.reference.row import Results, Row, Scene, kb, kib

RESULTS: Final = "`packages/bench/RESULTS.md`"
MATRIX: Final = "`packages/bench/results/2026-05-15T20-00-00Z/MATRIX.md`"
LATER: Final = "`packages/bench/results/2026-05-17T23-06-45Z/MATRIX.md`"
_JSON: Final = "json-sse | identity | at once"


def scenes(results: Results) -> Iterator[Scene]:
    """Return all of them."""
    for make in (_formats, _frames, _synthetic, _engine):
        yield make(results)


def cell(results: Results, scene: str, variant: str) -> Mapping[str, Any]:
    """Return the results of a replayed stream."""
    return results["lengths"]["rows"][scene][variant]


def bytes_of(results: Results, scene: str, variant: str) -> float:
    """Return the bytes of a replayed stream."""
    return float(cell(results, scene, variant)["bytes"])


def _cpu(results: Results, variant: str) -> float:
    row = results["wire"]["rows"]["prose | 1024 | 100"][variant]
    return float(row["server_us"] + row["client_us"])


_SMALL: Final[Mapping[str, tuple[float, ...]]] = {
    "msgpack": (226, kib(1.1), 253),
    "protobuf": (224, 924, 271),
}


def _formats(results: Results) -> Scene:
    ours = {
        form: bytes_of(results, "greedy | 64", f"{form} | identity | at once")
        for form in ("json-sse", "msgpack", "protobuf")
    }
    rows = [
        Row("JSON events, 64 tokens", kib(15.2), ours["json-sse"], "B", "15.2 KB"),
        Row("msgpack frames", 975, ours["msgpack"], "B"),
        Row("protobuf frames", 652, ours["protobuf"], "B"),
        Row("JSON events, per token", 243, ours["json-sse"] / 64, "B/token"),
        Row(
            "msgpack, gzip, per token", 3.5, bytes_of(results, "greedy | 64", "msgpack | gzip | never") / 64, "B/token"
        ),
        Row("msgpack, smaller than JSON events", 16.0, ours["json-sse"] / ours["msgpack"], "times"),
        Row("protobuf, smaller than JSON events", 23.9, ours["json-sse"] / ours["protobuf"], "times"),
        *(
            Row(
                f"{form}, {coding}",
                theirs,
                bytes_of(results, "greedy | 64", f"{form} | {coding} | never"),
                "B",
                kb(theirs),
            )
            for form, figures in _SMALL.items()
            for coding, theirs in zip(("gzip", "br", "zstd"), figures, strict=True)
        ),
        *(
            Row(f"CPU of both sides per token, {words}", None, _cpu(results, name), "µs", "not stated")
            for words, name in (
                ("JSON events", _JSON),
                ("msgpack", "msgpack | identity | at once"),
                ("protobuf", "protobuf | identity | at once"),
            )
        ),
    ]
    return Scene(
        "Wire formats",
        "An answer of 64 tokens of Qwen2.5-0.5B from SGLang, one token in each frame, plain and never flushed.",
        f"{RESULTS} §1",
        rows,
        "A token costs 243 B in SGLang's JSON events and 327 B in those of llama.cpp's server, our baseline. That "
        "flatters our ratios to JSON, so compare the bytes. msgpack frames have the same bytes on both sides, as the "
        "protocol says. Their protobuf frames spell out `done = false`, which takes two bytes in each and is "
        "nearly all of the difference.",
    )


_COMPACT: Final = {
    "integer keys, `done` only when true": (5.73, 3.48, 3.10, 3.03),
    "ids packed as LEB128 bytes": (6.03, 3.03, 2.53, 2.28),
}


def _frames(results: Results) -> Scene:
    stated = {"msgpack": (14.77, 5.78, 4.27, 3.64), "protobuf": (8.03, 3.53, 2.78, 2.40)}
    ours = results["lengths"]["bytes_a_token_by_ids_a_frame"]
    rows = [
        Row(f"{form}, {ids} per frame", theirs, float(size), "B/token")
        for form, figures in stated.items()
        for theirs, (ids, size) in zip(figures, ours[form].items(), strict=True)
    ]
    rows += [
        Row(f"{what}, {ids} per frame", theirs, None, "B/token", words="not built")
        for what, figures in _COMPACT.items()
        for ids, theirs in zip(ours["msgpack"], figures, strict=True)
    ]
    return Scene(
        "Shapes of frames",
        "Bytes per token of recorded ids in frames of 1, 4, 8 and 16 ids, by the shape of the frame: 287 ids of "
        "Qwen2.5 there, 1,024 ids of prose under SmolLM2's map here.",
        "`spec/proposals/v0.6-wire-shape.md` §1.2",
        rows,
        "The frames are the same; the difference comes from the smaller vocabulary, whose ids take at most three "
        "bytes. The two compact shapes are proposed there, but no engine sends them and no client reads them; "
        "compression takes most of what they would save.",
    )


_SYNTHETIC: Final = {
    "uniform": ("uniform over the vocabulary", ("32.3 KB", 32.3), (7223, 6957, 7542), 4.8),
    "half one id": ("the same id in every second place", ("29.1 KB", 29.1), (4482, 4632, 5221), 6.6),
    "fifty ids": ("fifty ids at random", ("26.0 KB", 26.0), (2914, 3446, 1606), 16.6),
    "ten in a circle": ("ten ids in a cycle", ("26.0 KB", 26.0), (211, 73, 68), 391.9),
}


def _synthetic(results: Results) -> Scene:
    rows: list[Row] = []
    for name, (words, (stated, size), compressed, ratio) in _SYNTHETIC.items():
        scene = f"{name} | 2048"
        plain = bytes_of(results, scene, "msgpack | identity | at once")
        rows.append(Row(f"{words}: not compressed", kib(size), plain, "B", stated))
        for coding, theirs in zip(("gzip", "br", "zstd+dict"), compressed, strict=True):
            shown = coding.replace("+dict", " with a dictionary")
            rows.append(Row(f"{words}: {shown}", theirs, bytes_of(results, scene, f"msgpack | {coding} | never"), "B"))
        batch = min(
            bytes_of(results, scene, f"msgpack | {each} | batch") for each in ("gzip", "br", "zstd", "zstd+dict")
        )
        rows.append(Row(f"{words}: best, sent as a batch by the gateway", min(compressed), batch, "B"))
        rows.append(Row(f"{words}: best, smaller than not compressed", ratio, plain / batch, "times"))
    return Scene(
        "Compressed synthetic streams",
        "2,048 ids made by a recipe, one in each msgpack frame, the whole stream compressed at once: no engine, no "
        "network, no flush. Ours follow the same recipes, with the same vocabulary of 152,064, but use another random "
        "number generator.",
        f"{RESULTS} §1, `packages/bench/scripts/synthetic_wire_bench.py`",
        rows,
        "The same libraries give about the same bytes: gzip differs by a few per cent at most. Brotli and zstd differ "
        "because of their levels; ours are those for a whole answer. Each side's dictionary was trained on its own "
        "streams, theirs on synthetic ones, so theirs wins for fifty ids. A batch puts the ids of a whole answer into "
        "one frame, which none of their rows does.",
    )


_ENGINES: Final = {
    "repetitive output (SGLang)": ("greedy", 485.2, (354, 291, 311, 298), (1404, 1707, 1598, 1667)),
    "more diverse output (vLLM)": ("prose", 517.8, (3874, 3925, 3985, 4476), (137, 135, 133, 119)),
    "llama.cpp": ("greedy", 528.8, (kib(16.1), 140, kib(16.1), 158), (33, 3868, 33, 3427)),
}
_BEST: Final = tuple((form, coding) for form in ("msgpack", "protobuf") for coding in ("gzip", "zstd+dict"))


def _engine(results: Results) -> Scene:
    rows: list[Row] = []
    for words, (name, size, frames, smaller) in _ENGINES.items():
        events = bytes_of(results, f"{name} | 2048", _JSON)
        rows.append(Row(f"{words}: JSON events", kib(size), events, "B", f"{size} KB"))
        for (form, coding), theirs, times in zip(_BEST, frames, smaller, strict=True):
            ours = bytes_of(results, f"{name} | 2048", f"{form} | {coding} | never")
            what = f"{words}: {form}, {coding.replace('+dict', ' with a dictionary')}"
            rows += [Row(what, theirs, ours, "B", kb(theirs)), Row(f"{what}, smaller", times, events / ours, "times")]
    rows += [
        Row(
            f"{words}: protobuf, gzip, flushed every 40 ms",
            *(None, bytes_of(results, f"{name} | 2048", "protobuf | gzip | 40 ms"), "B", "not stated"),
        )
        for words, name in (("repetitive", "greedy"), ("diverse", "prose"))
    ]
    rows += [
        Row(
            f"repetitive output (SGLang): {what}, per token",
            theirs,
            bytes_of(results, "greedy | 2048", name) / 2048,
            "B/token",
        )
        for what, theirs, name in (
            ("JSON events", 237, _JSON),
            ("msgpack, zstd with a dictionary", 0.14, "msgpack | zstd+dict | never"),
        )
    ]
    what = "CPU of both sides per token, protobuf, gzip, 40 ms, 100 tokens per second"
    rows.append(Row(what, None, _cpu(results, "protobuf | gzip | 40 ms"), "µs", "not stated"))
    return Scene(
        "A long answer, the best against JSON events",
        "2,048 tokens that Qwen2.5-0.5B wrote at temperature 0: as JSON events, and in the fewest bytes that frames "
        "take, never flushed.",
        f"{RESULTS} §1b and §10, {MATRIX} §1b",
        rows,
        "The result depends on what the model wrote: theirs range from 119 to 3,868 times smaller with the same model "
        "on three engines, except for gzip in llama.cpp, 33 times, which judging by its size flushes with every frame "
        "and so can't be compared with our rows. Ours are greedy output of SmolLM2, which is repetitive, and this "
        "repository's own prose. Their totals are for streams that were never flushed, whose first token comes at the "
        "end. What a person can watch as it is written are our rows with a flush every 40 ms, at the rate of their "
        "engine, and they take more bytes. On our side, “smaller” is relative to llama.cpp's longer events.",
    )
