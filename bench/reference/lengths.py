"""The reference's scenes of answers by their length: bytes in each coding, and times. Results in, scenes out."""

from collections.abc import Iterator, Mapping
from typing import Final

from bench.reference.row import Results, Row, Scene, kb, kib, median
from bench.reference.streams import LATER, MATRIX, RESULTS, bytes_of, cell


def scenes(results: Results) -> Iterator[Scene]:
    """Return all of them."""
    for make in (_crossover, _timed):
        yield make(results)


_CROSSOVER: Final[Mapping[str, tuple[float, ...]]] = {
    "msgpack, gzip": (110, 115, 126, 146, 194, 268, 400, 639),
    "msgpack, br": (303, 574, 923, *map(kib, (1.6, 2.9, 5.5, 10.8, 20.2))),
    "msgpack, zstd": (107, 112, 134, 152, 176, 239, 273, 381),
    "protobuf, gzip": (98, 102, 113, 133, 179, 247, 367, 587),
    "protobuf, br": (243, 408, 762, *map(kib, (1.4, 2.7, 5.3, 10.6, 20.0))),
    "protobuf, zstd": (100, 104, 122, 140, 164, 223, 258, 368),
}


def _crossover(results: Results) -> Scene:
    lengths = (16, 32, 64, 128, 256, 512, 1024, 2048)
    rows = [
        Row(
            f"{what}, {count:,} tokens",
            *(theirs, bytes_of(results, f"greedy | {count}", f"{what.replace(', ', ' | ')} | never"), "B"),
            kb(theirs),
        )
        for what, figures in _CROSSOVER.items()
        for count, theirs in zip(lengths, figures, strict=True)
    ]
    rows += [
        Row(
            f"protobuf, {coding}, flushed every 40 ms, {count:,} tokens",
            *(None, bytes_of(results, f"greedy | {count}", f"protobuf | {coding} | 40 ms"), "B", "not stated"),
        )
        for coding in ("gzip", "zstd")
        for count in (16, 128, 2048)
    ]
    return Scene(
        "Where one coding overtakes another",
        "Eight lengths of an answer to one prompt, one token in each frame, never flushed. Theirs is from SGLang, "
        "ours is a replay of SmolLM2's greedy output.",
        f"{RESULTS} §1c",
        rows,
        "How early a text starts to repeat itself decides here: theirs takes two bytes per token from 64 tokens on, "
        "ours only from 128, and is smaller in the end. Their brotli is compressed frame by frame, as they say "
        "themselves, and so hardly at all. Never flushed, zstd is ahead of gzip at all lengths here, and from 256 on "
        "there. With a flush every 40 ms it falls behind from the middle on, because a flush costs it more: so the "
        "gateway sends gzip to clients that accept both equally.",
    )


_GRID: Final[Mapping[tuple[str, str], tuple[float, ...]]] = {
    ("msgpack", "identity | at once"): (975, 7616, kib(30.0)),
    ("msgpack", "gzip | never"): (226, 730, 354),
    ("msgpack", "br | never"): (223, 673, 274),
    ("msgpack", "zstd+dict | never"): (213, 781, 291),
    ("protobuf", "identity | at once"): (652, 5136, kib(20.0)),
    ("protobuf", "gzip | never"): (224, 723, 311),
    ("protobuf", "br | never"): (222, 734, 278),
    ("protobuf", "zstd+dict | never"): (231, 819, 298),
}
_TOTALS: Final = {
    "JSON events": (169, 901, 3743),
    "msgpack, gzip": (121, 902, 3759),
    "protobuf, gzip": (119, 904, 3768),
    "msgpack, zstd": (118, 903, 3766),
    "protobuf, zstd": (119, 903, 3771),
}


_FIRST_BYTES: Final = {
    "SGLang": "45.7, 45.7, 3,919, 3,919 ms",
    "vLLM": "61.4, 61.5, 4,719, 4,718 ms",
    "llama.cpp": "41.4, 44.7, 5,164, 5,167 ms",
}


def _first(results: Results) -> list[Row]:
    real = results["path"]["real"]
    gzip, dictionary = (
        median(real, name, "first_ms") for name in ("msgpack, gzip, 40 ms", "protobuf, zstd with a dictionary, 40 ms")
    )
    return [
        Row("msgpack, gzip: first byte for theirs, first decoded token for ours", 45.7, gzip, "ms"),
        Row("zstd with a dictionary: the same", 3923, dictionary, "ms"),
        *(
            Row(
                f"msgpack, {coding}, never flushed: first decoded token",
                *(
                    None,
                    float(cell(results, "greedy | 2048", f"msgpack | {coding} | never")["first_ms"]),
                    "ms",
                    stated,
                ),
            )
            for coding, stated in (
                ("gzip", "not stated"),
                ("br", "first byte 3,922 ms"),
                ("zstd+dict", "first byte 3,923 ms"),
            )
        ),
        Row("an earlier run, msgpack, gzip: first byte for theirs, first decoded token for ours", 12, gzip, "ms"),
        Row("an earlier run, msgpack, zstd: the same", 3674, dictionary, "ms"),
        *(
            Row(
                f"{engine}, a later run, 2,048 tokens: first byte with plain, gzip, br, zstd",
                *(None, None, "ms", stated, f"gzip {gzip:.1f}, zstd {dictionary:.1f} ms to the first token"),
            )
            for engine, stated in _FIRST_BYTES.items()
        ),
    ]


def _bytes(results: Results) -> Iterator[Row]:
    for (form, coding), figures in _GRID.items():
        words = coding.replace("+dict", " with a dictionary").replace(" | ", ", ").replace("never", "never flushed")
        for count, theirs in zip((64, 512, 2048), figures, strict=True):
            ours = bytes_of(results, f"greedy | {count}", f"{form} | {coding}")
            what = f"{form}, {words.replace('identity, at once', 'plain')}, {count:,} tokens"
            yield Row(what, theirs, ours, "B", kb(theirs))
    for count, theirs in ((64, 226), (512, 730), (2048, 354)):
        ours = bytes_of(results, f"greedy | {count}", "msgpack | gzip | 40 ms")
        yield Row(f"msgpack, gzip, flushed every 40 ms, {count:,} tokens", theirs, ours, "B")


def _totals(results: Results) -> Iterator[Row]:
    for what, figures in _TOTALS.items():
        stated = ", ".join(f"{figure:,}" for figure in figures)
        yield Row(
            f"{what}, time for a whole answer of 64, 512 and 2,048 tokens",
            *(None, None, "ms", f"{stated} ms", "not measured: depends on the GPU's time per token"),
        )
    events, frames = (
        median(results["path"]["real"], name, "tokens_a_second") for name in ("JSON events", "msgpack, gzip, 40 ms")
    )
    yield Row(
        "time for the whole answer in frames, compared with JSON events",
        *(None, None, "ms", "less than 1 % longer"),
        f"{events:.1f} tokens per second in events, {frames:.1f} in msgpack and gzip",
    )


def _timed(results: Results) -> Scene:
    rate = results["lengths"]["rate"]
    return Scene(
        "Timed runs",
        "Answers of 64, 512 and 2,048 tokens: bytes, and milliseconds to the first byte of the body, by coding. Our "
        "times are to the first decoded token: through the gateway over SmolLM2 on one thread with its prompt in the "
        f"cache or, in the rows that say “never flushed”, replayed at the {rate} tokens per second of their engine.",
        f"{MATRIX} §3 and §4 (SGLang); the earlier run and whole answers in {RESULTS} §1d, the later run in {LATER} §4",
        [*_first(results), *_bytes(results), *_totals(results)],
        "The first byte is not the first token: gzip sends its header of ten bytes at once and, if it is never "
        "flushed, gives nothing to decode until the end. Brotli and zstd hold even that back, as their own times "
        "show. The gateway flushes, so with every coding the first token arrives when the engine has it; the price is "
        "more bytes. The times per token of the two engines are part of both columns and can't be compared, so for "
        "whole answers there is no figure of ours except the rate of one engine in two forms.",
    )
