"""The reference's scenes of tools and texts: MCP, leaves, tokenizing, translating. Results in, scenes out.

Pure. A row says so if its figure is not measured here in the same way.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bench.reference.row import Results, Row, Scene, Unit, kib, median
from bench.reference.streams import LATER

_RESULTS: Final = "`packages/bench/RESULTS.md`"


def scenes(results: Results) -> Iterator[Scene]:
    """Return all of them."""
    for make in (_list, _small_calls, _leaf, _tokenizing, _translator):
        yield make(results)


_SUMMARY: Final = "`packages/bench/results/2026-05-09T12-17-48Z/mcp/SUMMARY.md`"
_ALONE: Final = "not measured: depends on their server's headers and texts"


def _list(results: Results) -> Scene:
    gateway = median(results["mcp"]["rows"], "codec-gateway | http-http | modern | list of 200 at 1", "cpu_us")
    size, tools = results["mcp_answers"]["list"], results["mcp_answers"]["tools"]
    return Scene(
        "A list of tools over MCP",
        "The answer to `tools/list` with 40 tools, through their MetaMCP: as JSON, as a frame, and as a frame with "
        f"gzip. Ours has the {tools} tools of four public servers, as they list them, without HTTP headers.",
        f"{_SUMMARY} and `mcp-live.md`",
        [
            Row("JSON", kib(21.4), None, "B", "21.4 KB", f"{size['identity']:,} B, of other tools"),
            Row("msgpack", kib(19.0), None, "B", "19.0 KB", _JSON_ONLY),
            Row("msgpack, smaller than JSON", 21.4 / 19.0, None, "times", "1.1×", _JSON_ONLY),
            Row("msgpack and gzip", kib(5.9), None, "B", "5.9 KB", _JSON_ONLY),
            Row("msgpack and gzip, smaller than JSON", 3.6, None, "times", words=_JSON_ONLY),
            Row(
                "JSON and gzip, smaller than JSON, if a proxy in front of the gateway compresses",
                *(None, size["identity"] / size["gzip"], "times", "not stated"),
            ),
            Row("200 tools, CPU of the gateway per list", None, gateway, "µs", "not stated"),
        ],
        "The bytes of a list are mostly those of its descriptions, so only the factors can be compared. The gateway "
        "speaks JSON on MCP and leaves its compression to a proxy in front of it. Their table has no JSON with gzip, "
        "which any HTTP client can ask for: of this list it is smaller than a msgpack frame with gzip.",
    )


_JSON_ONLY: Final = "not built: MCP's answers are JSON here"
_OTHERS: Final = (
    ("the first request of a session", "892, 826, 856, 856 B"),
    ("a clock without ids", "863, 809, 838, 997 B"),
    ("a time conversion", "1.0 KB, 935, 972, 972 B"),
)


def _small_calls(results: Results) -> Scene:
    plain, leaf = (results["mcp_answers"][name] for name in ("call", "call with ids"))
    gateway = median(results["mcp"]["rows"], "codec-gateway | http-http | modern | 100 B at 1", "cpu_us")
    opening = results["maps"]["opening"]["wall_ms"]
    return Scene(
        "Small MCP calls",
        "One call of a clock through their MetaMCP: request and answer with all HTTP headers, in five forms. Ours are "
        "the bytes of one answer with one text of 30 characters, without headers.",
        f"{_SUMMARY} and `mcp-live.md`; the first call under a map in their earlier runs",
        [
            Row("JSON", 990, None, "B", words=f"{plain['identity']} B, the answer alone"),
            Row("msgpack", 883, None, "B", words=_JSON_ONLY),
            Row("msgpack and gzip", 931, None, "B", words=_JSON_ONLY),
            *(
                Row(f"{what}: JSON, msgpack, msgpack and gzip, and with a map", None, None, "B", stated, _ALONE)
                for what, stated in _OTHERS
            ),
            Row(
                "a request that names a map: longer by",
                *(None, None, "B", "162 to 167 B", "the same: clients send the same header"),
            ),
            Row("with a map named, JSON and ids", None, float(leaf["identity"]), "B", "not stated separately"),
            Row("CPU of the gateway per call", None, gateway, "µs", "not stated"),
            Row("the first call under a map", 1140, median(opening, "first encode, from the map"), "ms"),
            Row(
                "the first call under a compiled map",
                None,
                median(opening, "first verify, compiled"),
                "ms",
                "no equivalent",
            ),
        ],
        "Headers make up most of such a call, and gzip makes a body of a hundred bytes longer: theirs by 48 B, and it "
        "would do the same to ours. Their gateway loads a map during the request that names it; ours loads the "
        "allowed maps when it starts.",
    )


_STATED: Final = {
    "tokenize the text": 52,
    "read ids and trust them": 4,
    "reading and trusting, faster than tokenizing": 12.4,
    "answer without ids": 105,
    "answer with ids": 316,
}
"""The stated figures for a text of 30 characters."""


def _leaf(results: Results) -> Scene:
    rows: list[Row] = []
    for characters in ("30", "300", "3000"):
        for what, ours, unit in _texts(results["leaf"]["characters"][characters]):
            theirs = _STATED.get(what) if characters == "30" else None
            stated = "not stated" if theirs is None else ""
            rows.append(Row(f"{int(characters):,} characters: {what}", theirs, ours, unit, stated))
    return Scene(
        "A leaf against tokenizing",
        "A tool's text either arrives with its ids or is tokenized by the receiver: the receiver's CPU time, and the "
        "bytes of the answer. Theirs is a timestamp of some 30 characters; ours are texts from this repository's "
        "documents, on a tokenizer that has seen their words before.",
        f"{_RESULTS}, “MCP leaf-mode”",
        rows,
        "**At 30 characters reading ids costs more than tokenizing does here**, because our tokenizer looks up words "
        "that it has seen; from some hundred characters on ids win, by more the longer the text is. Their factor "
        "comes from a tokenizer that takes far longer. Where words are new, ours takes up to three times as long. Ids "
        "never win in bytes while the text is sent beside them: they say that ids do from 300 characters on, but give "
        "no measurement for it. The purpose of ids is that the model sees exactly what the tool wrote.",
    )


def _texts(found: Mapping[str, Any]) -> Iterator[tuple[str, float, Unit]]:
    cpu, size = found["cpu_us"], found["bytes"]
    tokenize, read = median(cpu, "tokenize"), median(cpu, "read")
    trust = read + median(cpu, "trust")
    yield "tokenize the text", tokenize, "µs"
    yield "read ids and trust them", trust, "µs"
    yield "read ids and verify them", read + median(cpu, "verify"), "µs"
    yield "reading and trusting, faster than tokenizing", tokenize / trust, "times"
    yield "answer without ids", float(size["plain"]["bytes"]), "B"
    yield "answer with ids", float(size["leaf"]["bytes"]), "B"


def _tokenizing(results: Results) -> Scene:
    found = results["leaf"]["characters"]["3000"]
    encode = found["bytes"]["ids"] / median(found["cpu_us"], "tokenize")
    library = found["bytes"]["ids"] / median(found["cpu_us"], "tokenize with `tokenizers` alone")
    decode = results["maps"]["million_ids_per_second"]
    many = median(decode, "stream, 1000 at a time")
    return Scene(
        "Tokenizing",
        "Tokens per second of their Python client on 35 short texts, 287 tokens, repeated; ours on one text of 3,000 "
        "characters, repeated, and on a million ids.",
        f"{_RESULTS}, “Per-language tokenize / detokenize throughput”; the later run in {LATER} §X",
        [
            *(
                Row(f"{what}{run}", theirs, ours, "million/s")
                for what, figures, ours in (
                    ("encoding, Python", (1.843964, 2.305406), encode),
                    ("encoding, their Rust client", (5.027811, 5.897886), encode),
                    ("decoding, Python, 1,000 ids at a time", (0.767983, 0.939642), many),
                    ("decoding, Python, one id at a time", (0.767983, 0.939642), median(decode, "stream, 1 at a time")),
                    ("decoding, their Rust client", (7.148906, 9.830450), many),
                    ("decoding, their C client", (17.325598, 22.991267), many),
                )
                for run, theirs in zip(("", ", a later run"), figures, strict=True)
            ),
            Row("encoding, the `tokenizers` library alone", None, library, "million/s", "not stated"),
        ],
        "Both sides repeat texts that they have seen, and look words up; on new words ours takes about as long as the "
        "library underneath. Rust is ahead of Python in encoding and C in decoding, where there is little to do for "
        "each id; Rust is not ahead in decoding because our pieces are long and their texts short.",
    )


def _translator(_: Results) -> Scene:
    rows = [
        Row(f"{count:,} tokens from Llama 3 to Qwen 2, {form} and gzip", theirs, None, "B", words="not built")
        for form, figures in (("msgpack", (215, 672, 709)), ("JSON events", (585, 2923, 10683)))
        for count, theirs in zip((64, 512, 2048), figures, strict=True)
    ]
    rows.append(Row("2,048 tokens, smaller than JSON events and gzip", 15.1, None, "times", words="not built"))
    return Scene(
        "Translator between vocabularies",
        "One model's ids become another's, by way of text, inside one process.",
        f"{_RESULTS}, “Cross-vocab translator microbench”",
        rows,
        "Not built: a gateway here stands in front of engines that share one tokenizer. An agent with another "
        "tokenizer gets text.",
    )
