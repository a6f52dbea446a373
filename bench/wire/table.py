"""The committed measurements of the wire as Markdown: the page `docs/wire-speed.md`.

Pure: results in, text out; a test compares it with what is in the repository. Written by `make bench-wire`, or by
`python -m bench.wire --publish` from the committed results.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bench.path.table import sections

Results = Mapping[str, Any]
Rows = Mapping[str, Mapping[str, Any]]

_HEAD: Final = """# What a token costs on the wire

How many bytes a stream of tokens takes in every format, coding and flush policy, how long tokens are held back, and how
much CPU both sides spend. The last section measures the whole path: a client, the gateway and an engine. This page is
generated from `bench/results/wire.json` and `path.json` by `make bench-wire`; a test checks that it matches them.
`bench/README.md` describes the method.

![Bytes per token for every format, coding and flush policy](wire-speed.svg)
"""
_BASELINE: Final = "json-sse | identity | at once"
_MAIN: Final = ("greedy | 1024 | 100", "prose | 1024 | 100")
_SHOWN: Final = {
    _BASELINE: "JSON events, as llama.cpp sends them",
    "json-sse | gzip | at once": "JSON events, gzip, flushed after every token",
    "json-sse | gzip | 40 ms": "JSON events, gzip, flushed after 40 ms",
    "msgpack | identity | at once": "msgpack",
    "protobuf | identity | at once": "protobuf",
    "msgpack | gzip | 40 ms": "msgpack, gzip, 40 ms (default)",
    "protobuf | gzip | 40 ms": "protobuf, gzip, 40 ms (default)",
    "protobuf | gzip | 50 ms": "protobuf, gzip, 50 ms",
    "protobuf | br | 40 ms": "protobuf, br, 40 ms",
    "protobuf | zstd+dict | 40 ms": "protobuf, zstd with a dictionary, 40 ms",
    "protobuf | gzip | batch": "protobuf, gzip, batch",
    "protobuf | br | batch": "protobuf, br, batch",
    "protobuf | zstd+dict | batch": "protobuf, zstd with a dictionary, batch",
    "protobuf | gzip | never": "protobuf, gzip, never flushed",
}
_BARS: Final = (
    ("at most 50 ms late, repetitive output", "greedy", ("at once", "40 ms", "50 ms"), 150),
    ("at most 50 ms late, prose", "prose", ("at once", "40 ms", "50 ms"), 100),
    ("at most 50 ms late, code", "code", ("at once", "40 ms", "50 ms"), 100),
    ("batch, repetitive output", "greedy", ("batch",), 900),
    ("batch, prose", "prose", ("batch",), 240),
    ("batch, code", "code", ("batch",), 240),
)


def short_table(results: Results) -> Iterator[str]:
    """Return the table of the variants that matter, and some that lose."""
    greedy, prose = (results["rows"][name] for name in _MAIN)
    yield "| 1,024 tokens at 100 per second | B/token | smaller | prose: B/token | smaller | held back, p99 | CPU |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, words in _SHOWN.items():
        one, other = greedy[name], prose[name]
        cpu = f"{one['server_us'] + one['client_us']:.0f} µs"
        yield (
            f"| {words} | {one['bytes_per_token']:.2f} | {_times(one)} | {other['bytes_per_token']:.2f} "
            f"| {_times(other)} | {one['p99_ms']:,.0f} ms | {cpu} |"
        )


def page(results: Results, path: Results) -> str:
    """Return the whole page. `path`: the results of `bench.path`."""
    parts = (_HEAD, *_machine(results), *_bars(results), *short_lines(results), *_all(results), *_reach(results))
    alone = (*_frames(results), *_handoff(results), *_memory(results))
    return "\n".join([*parts, *alone, *sections(path)]).rstrip() + "\n"


def _machine(results: Results) -> Iterator[str]:
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    yield (
        f"Measured on {results['date']}: {machine['cores']} cores ({machine['cpu']}), Python {machine['python']}, load "
        f"{machine['load'][0]} at the end; {results['rounds']} rounds, medians. {versions}."
    )
    yield ""


def _bars(results: Results) -> Iterator[str]:
    yield from ("## The best variants", "", "| 1,024 tokens at 100 per second | best | B/token | smaller | target |")
    yield "|---|---|---:|---:|---:|"
    for words, stream, policies, wanted in _BARS:
        rows: Rows = results["rows"][f"{stream} | 1024 | 100"]
        name = min((each for each in rows if each.split(" | ")[2] in policies), key=lambda each: rows[each]["bytes"])
        best, variant = rows[name], name.replace(" | ", ", ")
        yield f"| {words} | {variant} | {best['bytes_per_token']:.2f} | {_times(best)} | {wanted}× |"
    yield ""


def short_lines(results: Results) -> Iterator[str]:
    """Return that table with its heading."""
    yield from ("## The variants that matter", "", *short_table(results), "")
    yield (
        "The first two columns are for greedy output of SmolLM2, which is repetitive. “Smaller” compares with the "
        "first row. CPU is that of both sides together, per token."
    )
    yield ""


def _all(results: Results) -> Iterator[str]:
    streams = [name for name in results["rows"] if name.endswith("| 1024 | 100")]
    yield from ("## Bytes per token, every variant and stream", "", "1,024 tokens at 100 per second.", "")
    heads = [name.split(" | ")[0] for name in streams]
    yield f"| variant | {' | '.join(heads)} | p50 ms | p99 ms | server µs | client µs |"
    yield "|---|" + "---:|" * (len(streams) + 4)
    for name, row in results["rows"][streams[0]].items():
        sizes = " | ".join(f"{results['rows'][each][name]['bytes_per_token']:.2f}" for each in streams)
        cpu = f"{row['server_us']:.1f} | {row['client_us']:.1f}"
        yield f"| {name.replace(' | ', ', ')} | {sizes} | {row['p50_ms']:,.0f} | {row['p99_ms']:,.0f} | {cpu} |"
    yield from ("", "Delays and CPU times are those of the first stream.", "")


def _reach(results: Results) -> Iterator[str]:
    names = [name for name in results["rows"] if name.startswith(("greedy", "prose"))]
    yield from ("## Lengths and rates", "")
    yield (
        "Bytes per token and, in brackets, bytes × seconds to the first token. Columns: stream, tokens, and "
        "tokens per second."
    )
    yield ""
    yield f"| variant | {' | '.join(name.replace(' | ', ', ') for name in names)} |"
    yield "|---|" + "---:|" * len(names)
    for variant, words in _SHOWN.items():
        cells = (results["rows"][name][variant] for name in names)
        texts = " | ".join(f"{row['bytes_per_token']:.2f} ({row['bytes_by_first_s']:,.0f})" for row in cells)
        yield f"| {words} | {texts} |"
    yield ""


def _frames(results: Results) -> Iterator[str]:
    columns = results["frame_us_per_token"]
    yield from ("## Frames alone", "", "Microseconds of CPU per token, by the number of ids per frame.", "")
    yield f"| | {' | '.join(columns)} |"
    yield "|---|" + "---:|" * len(columns)
    for name in next(iter(columns.values())):
        cells = [f"{column[name]['median']:.2f}" for column in columns.values()]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def _handoff(results: Results) -> Iterator[str]:
    yield from ("## Handing 1,024 tokens to another agent", "")
    yield "As text, the tokens are decoded, sent as JSON, parsed and encoded again; as ids, they are sent in one frame."
    yield from ("", "| | bytes | ms of CPU |", "|---|---:|---:|")
    for name, row in results["handoff"].items():
        yield f"| {name} | {row['bytes']:,} | {row['ms']['median']:.2f} |"
    yield ""


def _memory(results: Results) -> Iterator[str]:
    yield from ("## Memory of an open stream", "", "On the server's side, after 1,000 ids flushed five at a time.", "")
    yield from ("| coding, effort | KiB |", "|---|---:|")
    for name, kib in results["stream_kib"].items():
        yield f"| {name} | {max(kib, 0):,.0f} |"
    yield ""


def _times(row: Mapping[str, Any]) -> str:
    return f"{row['smaller']:,.0f}×"
