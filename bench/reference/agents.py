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
        rows.append(Row(f"{form}, a frame for each token", stated[form], each, "ms"))
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
        Row(f"through the gateway, {name}: its CPU", None, median(row, "gateway_ms"), "ms", "not measured")
        for name, row in path.items()
    ]
    return Scene(
        "Handing 1,024 tokens to another agent",
        "CPU alone, without a network. As text ids become text, JSON, and ids again; as frames they are written and "
        "read. Theirs has 1,024 events or frames of one token, and a table of made-up words for a tokenizer; ours has"
        " one JSON text or one frame, and a real tokenizer.",
        f"{_RESULTS} §1d, `packages/bench/src/handoff.ts`",
        rows,
        "One frame is what an agent that has a whole context sends, so that is what the gateway reads. With a frame "
        "for each token ids would lose to our text, which is one JSON string. Our text is fast because words that "
        "were seen before are looked up, so ids gain less than theirs, on a cost that is small on both ways. Through "
        "a gateway it is smaller still: most of its time goes to the request itself.",
    )


def _one_call(results: Results) -> Scene:
    call = results["lengths"]["call"]
    stated = {"msgpack, the client finds the call": 343, "msgpack, the server finds the call": 393}
    return Scene(
        "A tool call in one turn",
        "The answer to “What's the weather in Tokyo?” with one tool offered, until the call is known: JSON events, "
        "frames that the client decodes, and frames of a server that finds the call. Theirs has 22 tokens; ours is "
        f"the same call, written out as {call['tokens']} tokens of SmolLM2, one in each event or frame, through the "
        "gateway's own code.",
        f"{_RESULTS} §3",
        [
            Row("JSON events", 6034, float(call["json-sse"]), "B"),
            *(Row(what, theirs, float(call[what]), "B") for what, theirs in stated.items()),
            *(
                Row(what, None, float(call[what]), "B", "not stated")
                for what in (each.replace("msgpack", "protobuf") for each in stated)
            ),
            Row("time, each in turn", None, None, "ms", "88, 51 and 50 ms", "not measured: a GPU's time a token"),
        ],
        "A frame of ours that says more than ids has a number, and the last one the count of tokens: these are what "
        "the frames cost more where the client finds the call. Where the server finds it, it is one frame with the "
        "call and with its ids and those of its markers, which theirs leave out: a client can go on from exactly "
        "what the model wrote. Events are those of llama.cpp's server. What a whole loop takes is in the next scene.",
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
            Row(f"{name}: JSON, frames, smaller", None, None, "B", stated, "not measured: what is found differs")
        )
    rows += [
        Row("JSON, the gateway runs the tool", None, sizes[_BY_GATEWAY], "B", "not there"),
        *(
            Row(f"time: {name}", None, times[name], "ms", stated)
            for name, stated in (
                (_BY_CLIENT, "134 ms mock, 686 ms MetaMCP; later 1,662 and 210 ms"),
                (_BY_GATEWAY, "not there"),
                (_FRAMED, "124 ms mock, 551 ms MetaMCP; later 189 and 216 ms"),
            )
        ),
    ]
    return Scene(
        "An agent's loop of two turns",
        "A model calls a tool and answers with its result. They don't say whether requests are in their bytes; ours "
        "have both directions.",
        f"{_RESULTS} §4 to §6, the later run in “Agent-loop benches”",
        rows,
        "Bytes go with the length of the answers and with what a server writes into an event. Their client asks twice"
        " in both ways; ours asks once where the gateway runs the tool. Our JSON is smaller than theirs, so frames "
        "save a smaller factor. The time is the model's: theirs runs on a GPU, ours on one thread of a CPU, so times "
        "of the two can't be compared. Between our own ways, a way finds in the engine's cache what the one before it"
        " has left there, so a difference of their times is not one of the forms; what a token costs the gateway in "
        "each form stands in [what a stream costs](wire-speed.md#the-whole-path).",
    )


def _watcher(results: Results) -> Scene:
    rates = results["toolcalls"]["watcher"]["million_ids_per_second"]
    decoding = median(results["maps"]["million_ids_per_second"], "stream, 1000 at a time")
    found = median(rates, "array, a region of 100 in each 1000")
    single = median(results["toolcalls"]["watcher"], "us_per_single_id")
    return Scene(
        "The watcher of tool calls",
        "A million ids through a watcher for two marker ids, in pieces of 1,024 there and at once here, and the same "
        "ids turned into text. Theirs is C, with 5 % of the ids inside regions; ours is Python, with 10 %.",
        f"{_RESULTS}, “ToolWatcher CPU microbench”; the earlier figures in its §7",
        [
            Row("watching", 481.1, found, "million/s"),
            Row("watching, an id", 2.08, 1e3 / found, "ns"),
            Row("watching, their earlier figure", 1648, found, "million/s"),
            Row("watching an id, their earlier figure", 0.61, 1e3 / found, "ns"),
            Row("watching ids that come one by one, an id", None, single, "µs", "not stated"),
            Row("turning into text", 18.0, decoding, "million/s"),
            Row("turning into text, their earlier figure", 16.6, decoding, "million/s"),
            Row("watching, faster than turning into text", 26.7, found / decoding, "times"),
            Row("the same, their earlier figure", 100, found / decoding, "times", "some 100×"),
        ],
        "C compares an id at a time faster than Python looks through an array. Of the earlier figures they say that "
        "machine and compiler are not known. Ids of a live stream come one by one, and then an id costs us what its "
        "row says: less than a hundredth of what it costs to read it from the engine. The watcher alone finds no call "
        "whose markers are several tokens; the parsers that do are in [the formats](tool-formats.md), at some three "
        "microseconds a token.",
    )
