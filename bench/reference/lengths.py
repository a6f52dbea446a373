"""The reference's scenes of answers by their length: bytes in each coding, and times. Results in, scenes out."""

from collections.abc import Iterator, Mapping
from typing import Final

from bench.reference.row import Results, Row, Scene, kb, kib, median
from bench.reference.streams import MATRIX, RESULTS, bytes_of, cell


def scenes(results: Results) -> Iterator[Scene]:
    """Give all of them."""
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
            f"protobuf, {coding} and a flush every 40 ms, {count:,} tokens",
            *(None, bytes_of(results, f"greedy | {count}", f"protobuf | {coding} | 40 ms"), "B", "not stated"),
        )
        for coding in ("gzip", "zstd")
        for count in (16, 128, 2048)
    ]
    return Scene(
        "Where one coding overtakes another",
        "Eight lengths of an answer to one prompt, one token in each frame, never flushed; SGLang there, a replay of "
        "SmolLM2's greedy output here.",
        f"{RESULTS} §1c",
        rows,
        "How early a text repeats itself decides here: theirs takes two bytes a token at 64 already, ours gets there "
        "at 128, and is smaller in the end. Their brotli is compressed frame by frame, as they say themselves, and so "
        "hardly at all. Never flushed, zstd is ahead of gzip at all lengths here, and from 256 "
        "on there. With a flush every 40 ms it falls behind from the middle on, because a flush costs it more: "
        "streams of the gateway are gzip where a client takes both equally.",
    )


def _timed(results: Results) -> Scene:
    real = results["path"]["real"]
    gzip, dictionary = (
        median(real, name, "first_ms") for name in ("msgpack, gzip, 40 ms", "protobuf, zstd with a dictionary, 40 ms")
    )
    rate = results["lengths"]["rate"]
    rows = [
        Row("msgpack, gzip: first byte there, first decoded token here", 45.7, gzip, "ms"),
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
    ]
    for count, theirs in ((64, 226), (512, 730), (2048, 354)):
        for policy, words in (("never", "never flushed"), ("40 ms", "a flush every 40 ms")):
            ours = bytes_of(results, f"greedy | {count}", f"msgpack | gzip | {policy}")
            rows.append(Row(f"msgpack, gzip, {words}, {count:,} tokens", theirs, ours, "B"))
    return Scene(
        "Timed runs",
        "Answers of 64, 512 and 2,048 tokens: bytes, and milliseconds to the first byte of the body, by coding. Ours "
        "to the first token that is decoded: through the gateway over SmolLM2 on one thread with its prompt in the "
        "cache, and, where it says never flushed, replayed at "
        f"the {rate} tokens a second of their engine.",
        f"{MATRIX} §3 and §4 (SGLang)",
        rows,
        "The first byte is not the first token: gzip sends its header of ten bytes at once, and never flushed it "
        "gives nothing to decode until the end. Brotli and zstd hold even that back, as their own times say. The "
        "gateway flushes, so that all codings have the first token when the engine does; it pays for that in bytes. "
        "The two engines' own times for a token are in both columns and can't be compared.",
    )
