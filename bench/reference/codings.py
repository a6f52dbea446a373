"""The reference's scenes of codings: by length, as ratios to plain frames, by dictionary. Results in, scenes out.

Pure. All of ours are replays, in which time is virtual.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from bench.reference.row import Results, Row, Scene, median
from bench.reference.streams import RESULTS, bytes_of, cell

_WIRE: Final = "`packages/bench/src/wire.ts`"
_COMPRESSION: Final = "`packages/bench/src/compression.ts`"
_LONG: Final = "greedy | 2048"


def scenes(results: Results) -> Iterator[Scene]:
    """Return all of them."""
    for make in (_bytes_a_token, _sweep, _ratios, _dictionaries):
        yield make(results)


def _bytes_a_token(results: Results) -> Scene:
    def each(scene: str, variant: str) -> float:
        return bytes_of(results, f"{scene} | 1024", variant) / 1024

    eight = results["lengths"]["random_in_frames_of_8"]
    rows = [
        Row("JSON events, 1 id in each", 154, each("one word", "json-sse | identity | at once"), "B/token"),
        Row("msgpack, 1 id per frame", 16.0, each("random", "msgpack | identity | at once"), "B/token"),
        Row("protobuf, 1 id per frame", 10.9, each("random", "protobuf | identity | at once"), "B/token"),
        Row("JSON events, 8 ids in each", 22.8, None, "B/token", words="not built: one event for each token"),
        Row("msgpack, 8 ids per frame", 5.5, float(eight["msgpack"]), "B/token"),
        Row("protobuf, 8 ids per frame", 3.9, float(eight["protobuf"]), "B/token"),
        *(
            Row(f"msgpack, 1 id per frame, {coding}", theirs, each("random", f"msgpack | {coding} | never"), "B/token")
            for coding, theirs in (("gzip", 3.5), ("br", 2.79), ("zstd", 3.4))
        ),
        *(
            Row(
                f"protobuf, 1 id per frame, {coding}",
                *(None, each("random", f"protobuf | {coding} | never"), "B/token", "3.4 to 3.6 B/token"),
            )
            for coding in ("gzip", "zstd")
        ),
        Row(
            "JSON events of a running server: Ollama there, the gateway here",
            *(186.4, median(results["path"]["real"], "JSON events", "bytes_per_token"), "B/token"),
        ),
    ]
    return Scene(
        "Bytes a token of random ids",
        "1,024 random ids of seventeen bits, not from a model: events and frames, plain and compressed as a whole. "
        "The frames hold exactly the ids that their own generator gives.",
        f"{_WIRE}, {_COMPRESSION}; for Ollama `packages/bench/src/live.ts`",
        rows,
        "The frames are the same, except for `done = false` in their protobuf. Their event has the text `word` for "
        "every id and few other fields; ours is what llama.cpp's server sends, with the same text. Events of eight "
        "tokens are not sent here: clients of JSON expect one event for each token.",
    )


_SWEEP: Final[Mapping[str, tuple[float, float, float]]] = {
    "json-sse | gzip": (116.0, 197.4, 248.5),
    "json-sse | br": (257.9, 1017.6, 8300.0),
    "msgpack | zstd": (39.0, 44.9, 52.2),
    "protobuf | zstd": (39.9, 43.1, 45.8),
}


def _sweep(results: Results) -> Scene:
    rows: list[Row] = []
    for variant, figures in _SWEEP.items():
        for count, theirs in zip((256, 1024, 8192), figures, strict=True):
            events = bytes_of(results, f"one word | {count}", "json-sse | identity | at once")
            scene = "one word" if variant.startswith("json") else "random"
            smaller = events / bytes_of(results, f"{scene} | {count}", f"{variant} | never")
            what = variant.replace("json-sse", "JSON events").replace(" | ", ", ")
            rows.append(Row(f"{what}, {count:,} tokens", theirs, smaller, "times"))
    texts = results["wire"]["rows"]["uniform | 1024 | 100"]
    rows += [
        Row(
            f"JSON events, {coding}, 1,024 tokens, each id with its own text",
            *(None, texts["json-sse | identity | at once"]["bytes"] / texts[f"json-sse | {coding} | never"]["bytes"]),
            *("times", "not measured"),
        )
        for coding in ("gzip", "br")
    ]
    return Scene(
        "Compression by the length of a random stream",
        "256, 1,024 and 8,192 random ids, compressed as a whole: how many times smaller they are than uncompressed "
        "JSON events.",
        f"{RESULTS} §1b, {_COMPRESSION}",
        rows,
        "All of their JSON events are the same except the last, since each has the text `word`: they contain no ids, "
        "and brotli compresses 8,192 of them to some 150 bytes. Our rows of JSON are for such events too, with a "
        "longer last one; in the last two rows each id has its own text, and then frames are smaller. Frames gain "
        "twice as much here because our events are twice as long; their bytes are in the previous scene.",
    )


_RATIOS: Final[Mapping[str, tuple[float, float, float, float]]] = {
    "msgpack | gzip": (0.023, 1.0, 722, 722),
    "msgpack | br": (0.733, 1.0, 25, 23),
    "msgpack | zstd": (0.017, 334, 3, 1014),
    "protobuf | gzip": (0.032, 1.0, 855, 784),
    "protobuf | br": (1.069, 1.0, 25, 23),
    "protobuf | zstd": (0.025, 335, 3, 1021),
}


def _ratios(results: Results) -> Scene:
    rows: list[Row] = []
    events = cell(results, _LONG, "json-sse | identity | at once")
    for variant, (size, first, shown, whole) in _RATIOS.items():
        ours, what = cell(results, _LONG, f"{variant} | 40 ms"), variant.replace(" | ", ", ")
        plain = cell(results, _LONG, f"{variant.partition(' ')[0]} | identity | at once")
        smaller = events["bytes"] / ours["bytes"]
        rows += [
            Row(f"{what}: bytes", size, ours["bytes"] / plain["bytes"], "of plain"),
            Row(f"{what}: time to the first token", first, ours["first_ms"] / plain["first_ms"], "of plain"),
            Row(
                f"{what}: bytes × first token, smaller", shown, smaller * events["first_ms"] / ours["first_ms"], "times"
            ),
            Row(f"{what}: bytes, smaller", whole, smaller, "times"),
        ]
    for form in ("msgpack", "protobuf"):
        sizes = (bytes_of(results, _LONG, f"{form} | {how}") for how in ("gzip | 40 ms", "identity | at once"))
        rows.append(
            Row(f"{form}, gzip: bytes, compared with their llama.cpp", 1.0, next(sizes) / next(sizes), "of plain")
        )
    return Scene(
        "Ratios of each coding",
        "An answer of some 2,048 tokens in each coding, compared with the same frames plain: bytes and time to the "
        "first token; and compared with JSON events: how many times smaller the bytes are, and the product of bytes "
        "and that time. Theirs is SGLang, never flushed; ours is with the gateway's flush every 40 ms.",
        f"{RESULTS} §1d and §1f",
        rows,
        "Their time is to the first byte, which zstd holds back until the end. The flush makes every coding here give "
        "the first token at once, so the ratio of times is 1 (exactly 1, since this is a replay); it costs more bytes "
        "with brotli and zstd than with gzip. Their brotli compresses each frame separately, ours the stream as a "
        "whole. Batches, which may wait, are smaller than these. On our side, “smaller” is relative to our longer "
        "events. In that run their llama.cpp did not compress, and their vLLM did not start.",
    )


_DICTIONARIES: Final = {
    "msgpack": (
        ("up to 300 B plain", 16, "78 B of 189 B", 38.1),
        ("up to 2.5 KB", 64, "256 B of 1.2 KB", 37.5),
        ("over 2.5 KB", 1024, "1.9 KB of 11.0 KB", 14.5),
    ),
    "protobuf": (
        ("up to 300 B plain", 16, "81 B of 176 B", 36.4),
        ("up to 2.5 KB", 64, "367 B of 1.3 KB", 34.2),
        ("over 2.5 KB", 1024, "2.5 KB of 9.4 KB", 15.5),
    ),
}


def _dictionaries(results: Results) -> Scene:
    rows: list[Row] = []
    for form, buckets in _DICTIONARIES.items():
        for size, count, stated, gain in buckets:
            for name, whose in (("prose", "prose"), ("greedy", "output")):
                scene = f"{name} | {count}"
                plain = bytes_of(results, scene, f"{form} | identity | at once")
                without, held = (bytes_of(results, scene, f"{form} | {each} | never") for each in ("zstd", "zstd+dict"))
                what = f"{form}, {size}, {whose} of {count:,} tokens"
                rows.append(Row(f"{what}: saved by the dictionary", gain, 100 * (1 - held / without), "%"))
                rows.append(Row(f"{what}: bytes", None, None, "B", stated, f"{held:,.0f} B of {plain:,.0f} B"))
    return Scene(
        "Dictionaries by the size of a stream",
        "zstd with a dictionary compared with zstd without one, never flushed. Theirs are 256 synthetic streams in "
        "three sizes, with a dictionary trained on such streams; ours are one stream of prose and one of a model's "
        "output in each size, with a dictionary trained on other streams.",
        f"{RESULTS} §1g",
        rows,
        "Theirs is measured with streams of the recipe that it was trained on, most of them the very same streams; "
        "for streams held back from training, all sizes together, they state 15.7 % for msgpack and 16.7 % for "
        "protobuf. Ours was trained on other texts, so it saves mainly at the beginning of a stream: more of a short "
        "stream than of a long one.",
    )
