"""The reference's scenes of agents: a handoff, a call, a loop, the watcher. Results in, scenes out.

Pure. A row says so if its figure is not measured here in the same way.
"""

from collections.abc import Iterator
from typing import Final

from bench.reference.row import Results, Row, Scene, median

_RESULTS: Final = "`packages/bench/RESULTS.md`"
_HANDED: Final = 1024
_BY_CLIENT: Final = "JSON, the client runs the tool"
_BY_GATEWAY: Final = "JSON, the gateway runs it"
_FRAMED: Final = "protobuf and gzip, the gateway runs it"
_GPU: Final = "not measured: depends on the GPU's time per token"


def scenes(results: Results) -> Iterator[Scene]:
    """Return all of them."""
    for make in (_handoff, _one_call, _loop, _watcher):
        yield make(results)


def _handoff(results: Results) -> Scene:
    whole, frames = results["wire"]["handoff"], results["wire"]["frame_us_per_token"]["1"]
    path = results["path"]["handoff"]
    stated = {"text": 7.3, "msgpack": 2.8, "protobuf": 1.1}
    rows = [Row("as text, CPU of both sides", 7.3, median(whole, "text", "ms"), "ms")]
    for form in ("msgpack", "protobuf"):
        each = (median(frames, f"{form}, write") + median(frames, f"{form}, read")) * _HANDED / 1e3
        rows.append(Row(f"{form}, one frame per token", stated[form], each, "ms"))
        rows.append(Row(f"{form}, one frame", stated[form], median(whole, form, "ms"), "ms"))
        faster = median(whole, "text", "ms") / median(whole, form, "ms")
        rows.append(
            Row(f"{form}, one frame, faster than text", {"msgpack": 2.6, "protobuf": 6.9}[form], faster, "times")
        )
    rows += [
        Row(f"{form}, bytes", None, float(whole[form]["bytes"]), "B", "not stated")
        for form in ("text", "msgpack", "protobuf")
    ]
    rows += [
        Row(f"through the gateway, {name}: the gateway's CPU", None, median(row, "gateway_ms"), "ms", "not measured")
        for name, row in path.items()
    ]
    return Scene(
        "Handing 1,024 tokens to another agent",
        "CPU time alone, without a network. As text, the ids become text, JSON, and ids again; as frames, they are "
        "written and read. Theirs has 1,024 events or frames of one token, and a table of made-up words for a "
        "tokenizer; ours has one JSON text or one frame, and a real tokenizer.",
        f"{_RESULTS} §1d, `packages/bench/src/handoff.ts`",
        rows,
        "One frame is what an agent sends that has a whole context, so it is what the gateway reads. With a frame for "
        "each token, ids would lose to our text, which is one JSON string. Our text is fast because words that were "
        "seen before are looked up, so ids gain less than theirs, and the cost is small either way. Through a gateway "
        "they gain still less: most of its time goes to the request itself.",
    )


def _one_call(results: Results) -> Scene:
    call = results["lengths"]["call"]
    stated = {"msgpack, the client finds the call": 343, "msgpack, the server finds the call": 393}
    return Scene(
        "A tool call in one turn",
        "The answer to “What's the weather in Tokyo?” with one tool offered, until the call is known: as JSON events, "
        "as frames that the client decodes, and as frames of a server that finds the call. Theirs has 22 tokens; ours "
        f"is the same call, written out as {call['tokens']} tokens of SmolLM2, one in each event or frame, through the "
        "gateway's own code.",
        f"{_RESULTS} §3",
        [
            Row("JSON events", 6034, float(call["json-sse"]), "B"),
            *(Row(what, theirs, float(call[what]), "B") for what, theirs in stated.items()),
            *(
                Row(what, None, float(call[what]), "B", "not stated")
                for what in (each.replace("msgpack", "protobuf") for each in stated)
            ),
            Row("time, in the same order", None, None, "ms", "88, 51 and 50 ms", _GPU),
        ],
        "Each of our frames that carries more than ids has a number, and the last one has the count of tokens; that "
        "is why ours are larger where the client finds the call. Where the server finds it, ours is one frame with "
        "the call, its ids and those of its markers, which theirs leaves out: so a client can continue from exactly "
        "what the model wrote. The events are those of llama.cpp's server. The next scene has the bytes and the time "
        "of a whole loop.",
    )


_LOOPS: Final = (
    ("their mock tool", 13694, 809, 16.9),
    ("their mock tool, a later run", 13419, 794, 16.9),
    ("their clock behind MetaMCP", 19629, 1102, 17.8),
    ("their clock behind MetaMCP, a later run", 18072, 1061, 17.0),
)
_SEARCHES: Final = (("a live search", 61913, 3402, 18.2), ("a live search, a later run", 42302, 2348, 18.0))


def _loop(results: Results) -> Scene:
    loop = results["path"]["loop"]
    sizes = {name: median(row, "bytes_up") + median(row, "bytes_down") for name, row in loop.items()}
    times = {name: median(row, "ms") for name, row in loop.items()}
    rows: list[Row] = []
    for name, by_json, framed, smaller in _LOOPS:
        rows += [
            Row(f"{name}: JSON, the client runs the tool", by_json, sizes[_BY_CLIENT], "B"),
            Row(f"{name}: frames", framed, sizes[_FRAMED], "B"),
            Row(f"{name}: frames, smaller", smaller, sizes[_BY_CLIENT] / sizes[_FRAMED], "times"),
        ]
    for name, by_json, framed, smaller in _SEARCHES:
        stated = f"{by_json:,} B, {framed:,} B, {smaller}×"
        rows.append(
            Row(f"{name}: JSON, frames, smaller", None, None, "B", stated, "not measured: search results differ")
        )
    rows += [
        Row("JSON, the gateway runs the tool", None, sizes[_BY_GATEWAY], "B", "no equivalent"),
        *(
            Row(f"time: {name}", None, times[name], "ms", stated)
            for name, stated in (
                (_BY_CLIENT, "134 ms mock, 686 ms MetaMCP; later 1,662 and 210 ms"),
                (_BY_GATEWAY, "no equivalent"),
                (_FRAMED, "124 ms mock, 551 ms MetaMCP; later 189 and 216 ms"),
            )
        ),
    ]
    return Scene(
        "An agent's loop of two turns",
        "A model calls a tool and answers with its result. They don't say whether their bytes include requests; ours "
        "include both directions.",
        f"{_RESULTS} §4 to §6, the later run in “Agent-loop benches”",
        rows,
        "The bytes depend on the length of the answers and on what a server writes into an event. Their client always "
        "sends two requests; ours sends one where the gateway runs the tool. Our JSON is smaller than theirs, so the "
        "factor that frames save is smaller too. The time is mostly the model's: theirs runs on a GPU, ours on one "
        "thread of a CPU, so the two can't be compared. Nor are our own times a comparison of the forms, since each "
        "way finds in the engine's cache what the previous one left there; what a token costs the gateway in each "
        "form is in [what a stream costs](wire-speed.md#the-whole-path).",
    )


def _watcher(results: Results) -> Scene:
    rates = results["toolcalls"]["watcher"]["million_ids_per_second"]
    decoding = median(results["maps"]["million_ids_per_second"], "stream, 1000 at a time")
    found = median(rates, "array, a region of 100 in each 1000")
    single = median(results["toolcalls"]["watcher"], "us_per_single_id")
    return Scene(
        "The watcher of tool calls",
        "A million ids through a watcher for two marker ids, in pieces of 1,024 for theirs and all at once for ours; "
        "and the same ids decoded into text. Theirs is in C, with 5 % of the ids inside regions; ours is in Python, "
        "with 10 %.",
        f"{_RESULTS}, “ToolWatcher CPU microbench”; the earlier figures in its §7",
        [
            Row("watching", 481.1, found, "million/s"),
            Row("watching, per id", 2.08, 1e3 / found, "ns"),
            Row("watching, their earlier figure", 1648, found, "million/s"),
            Row("watching, per id, their earlier figure", 0.61, 1e3 / found, "ns"),
            Row("watching ids that come one by one, per id", None, single, "µs", "not stated"),
            Row("decoding into text", 18.0, decoding, "million/s"),
            Row("decoding into text, their earlier figure", 16.6, decoding, "million/s"),
            Row("watching, faster than decoding", 26.7, found / decoding, "times"),
            Row("the same, their earlier figure", 100, found / decoding, "times", "some 100×"),
        ],
        "C compares one id at a time faster than Python searches an array. They say that the machine and compiler of "
        "their earlier figures are not known. Ids of a live stream come one by one; then an id costs us what its row "
        "says, less than a hundredth of what it costs to read it from the engine. The watcher alone does not find "
        "calls whose markers are several tokens; the parsers that find them are in [the formats](tool-formats.md), "
        "and take some three microseconds per token.",
    )
