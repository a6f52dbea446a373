"""The committed measurements of the whole path as Markdown: sections of `docs/wire-speed.md`.

Pure: results in, lines out.
"""

import statistics
from collections.abc import Iterator, Mapping
from typing import Any, Final

from bench.path.ways import ENGINE, JSON, PROTOBUF, Way

Results = Mapping[str, Any]
BUDGET_MS: Final = 40
SLACK_MS: Final = 25


def sections(results: Results) -> Iterator[str]:
    """Return all of them."""
    machine = results["machine"]
    yield from ("## The whole path", "")
    yield "A client, the gateway and an engine, each in its own process on one machine; the client decodes at once."
    yield (
        f"Measured on {results['date']}: {machine['cores']} cores, Python {machine['python']}, load "
        f"{machine['load'][0]} at the end; {results['rounds']} rounds, medians."
    )
    yield ""
    for part in (_real, _single, _crowd, _handoff, _loop):
        yield from part(results)


def _real(results: Results) -> Iterator[str]:
    yield from ("### A real model", "")
    yield (
        f"{results['tokens']} tokens of SmolLM2 on one thread of llama.cpp, with the prompt in the engine's cache. In "
        "the first row the client asks llama.cpp's own server, in the others the gateway in front of that server."
    )
    yield from ("", "| | bytes | B/token | smaller | first token, ms | tokens/s | gateway, µs per token |")
    yield "|---|---:|---:|---:|---:|---:|---:|"
    baseline = results["real"][ENGINE.name]["bytes"]["median"]
    for name, row in results["real"].items():
        spent = f"{_median(row, 'gateway_us_per_token'):.0f}" if "gateway_us_per_token" in row else ""
        # In batch all but the first come with the end, so a rate would mean nothing.
        pace = "at the end" if "batch" in name else f"{_median(row, 'tokens_a_second'):.1f}"
        yield (
            f"| {name} | {_median(row, 'bytes'):,.0f} | {_median(row, 'bytes_per_token'):.2f} "
            f"| {baseline / _median(row, 'bytes'):,.0f}× | {_median(row, 'first_ms'):.1f} | {pace} | {spent} |"
        )
    yield from ("", "Bytes are all that came over the socket, including the response's headers and chunk sizes.", "")


def _single(results: Results) -> Iterator[str]:
    yield from ("### One stream from a stub engine", "", "The stub replays recorded ids and costs next to nothing.", "")
    firsts = results["first_ms"]
    yield from ("| | first token, ms | added, ms | target |", "|---|---:|---:|---:|")
    yield f"| {ENGINE.name} | {_median(firsts, ENGINE.name):.2f} | | |"
    for way in (JSON, PROTOBUF):
        yield f"| {way.name} | {_median(firsts, way.name):.2f} | {added_ms(firsts, way):.2f} | < 1 |"
    yield from ("", "CPU time of the gateway per token, in microseconds:", "")
    columns = (
        "tokens per second",
        "relaying alone",
        "reading alone",
        JSON.name,
        "protobuf, gzip",
        "beyond reading",
        "target",
    )
    yield f"| {' | '.join(columns)} |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for rate, row in results["us_per_token"].items():
        cells = (_median(row, name) for name in ("passing on alone", "reading alone", JSON.name, PROTOBUF.name))
        texts = " | ".join(f"{cell:.1f}" for cell in cells)
        yield f"| {rate} | {texts} | {beyond_reading(row, PROTOBUF):.1f} | < 30 |"
    yield ""
    yield (
        "“Relaying alone” is a process that copies bytes between two sockets without looking at them; “reading alone” "
        "is the gateway's own engine client in a process that does nothing else; “beyond reading” is what protobuf "
        "and gzip cost on top of that. The slower a stream, the colder the process is when a token wakes it. What an "
        f"idle gateway uses ({results['idle_ms_a_second']:.1f} ms per second) is subtracted."
    )
    yield ""


def _crowd(results: Results) -> Iterator[str]:
    yield from ("### Many streams at once", "")
    yield (
        "Each stream carries 100 tokens per second from the stub engine, as protobuf with gzip, flushed after 40 ms. A "
        "token's delay is the time from the stub sending it to the client having decoded it; the target is at most "
        f"{BUDGET_MS + SLACK_MS} ms for 99 in 100. Every id of every stream was compared. “Cores” are CPU seconds per "
        "second."
    )
    yield from (
        "",
        "| streams | tokens/s | p50, ms | p99, ms | max, ms | gateway, µs per token | KiB per stream | cores |",
    )
    yield "|---:|---:|---:|---:|---:|---:|---:|---|"
    for row in sorted(results["crowd"], key=lambda each: each["streams"]):
        spent = f"{row['gateway_us_per_token']:.1f} | {row['kib_per_stream']:,.0f}"
        yield _crowd_row(str(row["streams"]), row, spent)
    direct = results["crowd_direct"]
    yield _crowd_row(f"{direct['streams']}, no gateway", direct, " | ")
    yield ""
    yield "In the last row the client reads the stub's own JSON events: what the two can do with nothing in between."
    yield ""


def _crowd_row(name: str, row: Mapping[str, Any], spent: str) -> str:
    cores = ", ".join(f"{who} {share:.2f}" for who, share in row["cores"].items())
    times = " | ".join(f"{row[key]:.1f}" for key in ("p50_ms", "p99_ms", "max_ms"))
    return f"| {name} | {row['tokens_a_second']:,} | {times} | {spent} | {cores} |"


def _handoff(results: Results) -> Iterator[str]:
    yield from ("### Handing 1,024 tokens to an agent behind the gateway", "")
    yield "The agent's engine is the stub, which answers one token. A prompt sent as text is encoded by the gateway."
    yield from ("", "| | bytes | sender, ms of CPU | gateway, ms of CPU | total, ms |", "|---|---:|---:|---:|---:|")
    for name, row in results["handoff"].items():
        cells = (_median(row, key) for key in ("sender_ms", "gateway_ms", "ms"))
        yield f"| {name} | {_median(row, 'bytes'):,.0f} | {' | '.join(f'{cell:.2f}' for cell in cells)} |"
    yield ""


def _loop(results: Results) -> Iterator[str]:
    yield from ("### A loop of two turns with a tool", "")
    yield "SmolLM2 calls a tool that tells the time, then answers; at most 64 tokens per turn, greedy."
    yield from ("", "| | requests | bytes up | bytes down | ms |", "|---|---:|---:|---:|---:|")
    for name, row in results["loop"].items():
        cells = (_median(row, key) for key in ("requests", "bytes_up", "bytes_down", "ms"))
        yield f"| {name} | {' | '.join(f'{cell:,.0f}' for cell in cells)} |"
    yield ""


def added_ms(rows: Mapping[str, Any], way: Way) -> float:
    """Return what a way adds to the time to the first token: a difference of medians."""
    return rows[way.name]["median"] - rows[ENGINE.name]["median"]


def beyond_reading(rows: Mapping[str, Any], way: Way) -> float:
    """Return what a way costs the gateway beyond reading, in microseconds: a median of differences within rounds."""
    alone = rows["reading alone"]["samples"]
    return statistics.median(a - b for a, b in zip(rows[way.name]["samples"], alone, strict=True))


def _median(row: Mapping[str, Any], key: str) -> float:
    return float(row[key]["median"])
