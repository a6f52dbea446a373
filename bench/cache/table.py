"""The committed measurements of the cache as a page: `docs/cache-speed.md`. Pure: results in, text out."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bench.cache.bars import PARTS, TIE, bars, named

Results = Mapping[str, Any]
_HEAD: Final = """# What conversations find again

How much of their cache conversations find again when they outnumber the engine's slots: with the gateway's
[slot files](operate.md#slot-files), and with a stock llama.cpp server that has the same memory and gets the same
requests in the same order. `make bench-cache` takes the measurements and writes this page from
`bench/results/cache.json`, which holds every sample; a test checks that the page matches them.
[bench/README.md](../bench/README.md) describes the method.

![Ids found again, by memory and shape: the gateway, a stock server, and the best policy](cache-speed.svg)
"""
_WORDS: Final = """W is the size of all conversations at their longest. Memory is what there is besides the slots, in
whole mebibytes: slot files for the gateway, the host cache for the server. **Found again** is the share that is reused
of the ids that the engine had when the conversation's previous answer ended, over all requests but its first. **Best**
is a policy over whole conversations that knows in which order they come back. **Informed** is one that knows which
conversations are waiting for a slot and how long tools take on average, but not how long each one takes: about as much
as can be known."""
_STOCK: Final = """By default a stock server has one KV cache for all slots. Where a conversation lies in it then
depends on the others, and so does the rounding; with a cache for each slot, they depend on the others less."""
_KINDS: Final = """`python -m bench.cache.kinds`, {date}. In the first scene {talks} conversations of 2,000 to 6,000
tokens take some turns each on {slots} slots, and a template drops what the model thought at the next question.
Beside the slots both sides have the same memory, in which all conversations fit as slot files. **Again** is what a
question processes besides the visible answer before it and itself. In the second scene conversations begin with one
preamble of 2,000 tokens, and what follows takes 300; **again** is what all but the first process besides those. What a
server reuses does not depend on weights, so a tiny model with random ones stands for its architecture."""
_SIDES: Final = {"ours": "gateway", "stock": "stock server"}


def page(results: Results, kinds: Results) -> str:
    """Return the whole page. `kinds`: the results of `bench.cache.kinds`."""
    parts = (_machine, _bars, _scenes, _answers, _orders, _swaps, _back, _stalls)
    lines = [line for part in parts for line in part(results)] + list(_kinds(kinds))
    return "\n".join([_HEAD, *lines]).rstrip("\n") + "\n"


def _machine(results: Results) -> Iterator[str]:
    machine, versions = results["machine"], results["versions"]
    yield (
        f"Measured on {results['date']}: {machine['cores']} cores shared with other work, Python {machine['python']}, "
        f"load {machine['load'][0]} at the end; xllamacpp {versions['xllamacpp']}, {results['rounds']} rounds. "
        "Counts of ids do not depend on the load; seconds do."
    )
    yield from ("", _WORDS, "")


def _bars(results: Results) -> Iterator[str]:
    yield from ("## Our own limits", "", "|  | limit | measured | met |", "|---|---|---|---|")
    for bar in bars(results):
        yield f"| {bar.what} | {bar.bar} | {bar.measured} | {'yes' if bar.held else '**no**'} |"
    yield ""


def _scenes(results: Results) -> Iterator[str]:
    yield from ("## On a real server", "")
    yield (
        "The model has one layer; tools take 0.2 to 20 s, and an answer takes 1 s on average. In the small scenes "
        "conversations take strict turns, one request at a time."
    )
    yield from (
        "",
        "| | memory | gateway | stock | informed | best | ids processed: gateway | stock | seconds: gateway | stock |",
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for name, row in results["scenes"].items():
        what, part = named(name)
        found = [_spread(row[side]["reuse"]) for side in _SIDES] + [
            f"{row[known]:.1%}" for known in ("informed", "best")
        ]
        counts = [f"{row[side]['processed']['median']:,.0f}" for side in _SIDES]
        seconds = [f"{row[side]['seconds']['median']:.1f}" for side in _SIDES]
        memory = f"{PARTS[part]}: {row['mib']} MiB"
        yield f"| {what} | {memory} | {' | '.join([*found, *counts, *seconds])} |"
    yield ""


def _spread(reuse: Mapping[str, Any]) -> str:
    least, most = (f"{reuse[key]:.1%}" for key in ("min", "max"))
    return least if least == most else f"{reuse['median']:.1%} ({least} to {most})"


def _answers(results: Results) -> Iterator[str]:
    yield from ("## Answers", "")
    yield "Each answer has 8 ids, chosen greedily, and is compared with that of an engine that reuses nothing."
    yield from ("", "| | answers | differ from those without a cache | of these, not ties | widest margin, nats |")
    yield "|---|---:|---:|---:|---:|"
    for side, words in _SIDES.items():
        yield _others(words, [row[side] for row in results["scenes"].values()])
    yield _others("a stock server with a KV cache for each slot, W", [results["apart"]["one"]])
    yield _others("two gateways on that server", [results["apart"]["two"]])
    yield ""
    yield (
        "Where two answers diverge, the engine without a cache is asked how likely each of the two ids is. If part of "
        "a prompt is reused, the rest is processed in other batches, and rounding differs: between two ids less than "
        f"{TIE:g} nats apart that may decide, and such an answer counts as a tie."
    )
    yield ""
    yield from (_STOCK, "")


def _others(words: str, rows: list[Mapping[str, Any]]) -> str:
    asked, others, beyond = (sum(row[key] for row in rows) for key in ("answers", "differing", "beyond_ties"))
    return f"| {words} | {asked:,} | {others} | {beyond} | {max(row['widest'] for row in rows):.4f} |"


def _orders(results: Results) -> Iterator[str]:
    yield from ("## In other orders", "")
    draws = len(next(iter(results["orders"].values()))["ours"]["samples"])
    yield (
        f"The gateway's paging alone, without an engine: 40 conversations on 4 slots, medians of {draws} draws. The "
        "less time an answer takes, the fewer conversations wait for a slot, and the less can be known about the order."
    )
    yield from ("", "| order | shape | memory | gateway | informed | best |", "|---|---|---|---:|---:|---:|")
    for name, row in results["orders"].items():
        order, shape, part = name.split(" | ")
        cells = (f"{row[key]['median']:.1%}" for key in ("ours", "informed", "best"))
        yield f"| {order} | {shape} | {PARTS[part]} | {' | '.join(cells)} |"
    yield ""


def _swaps(results: Results) -> Iterator[str]:
    yield from ("## What a swap costs", "", "SmolLM2 on one thread, in milliseconds.", "")
    yield from (
        "| ids | bytes per id | save | restore | digest, for each save and restore |",
        "|---:|---:|---:|---:|---:|",
    )
    for row in results["times"]["swaps"].values():
        cells = " | ".join(_ms(row[key]) for key in ("save_ms", "restore_ms", "digest_ms"))
        yield f"| {row['ids']:,} | {row['bytes_an_id']:,.0f} | {cells} |"
    yield ""


def _back(results: Results) -> Iterator[str]:
    yield from ("The time to the first id of a conversation whose slot another had taken, in milliseconds:", "")
    yield from ("| ids | restored | processed again |", "|---:|---:|---:|")
    for size, row in results["times"]["back"].items():
        yield f"| {int(size):,} | {_ms(row['restored_ms'])} | {_ms(row['processed_ms'])} |"
    yield ""


def _stalls(results: Results) -> Iterator[str]:
    stalls = results["times"]["stalls"]
    yield from (
        "The longest pause of an answer, in milliseconds, while in another slot a conversation of "
        f"{stalls['ids']:,} ids:",
        "",
    )
    yield from ("| does nothing | is saved and another restored | is processed again |", "|---:|---:|---:|")
    yield f"| {' | '.join(_ms(stalls[key]) for key in ('nothing', 'swap', 'process'))} |"
    yield ""


def _kinds(results: Results) -> Iterator[str]:
    yield from ("## By kind of model", "")
    yield _KINDS.format(**results).replace("\n", " ")
    yield from (
        "",
        "| | memory | turns | reasoning, again: gateway | stock | preamble, again: gateway | stock | other tokens |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    )
    for name, row in results["kinds"].items():
        cells = [_again(row[side][scene]) for scene in ("reasoning", "preambles") for side in _SIDES]
        played = [row[side][scene] for side in _SIDES for scene in ("reasoning", "preambles")]
        others = f"{sum(len(each['others']) for each in played)} of {sum(each['checked'] for each in played)}"
        yield f"| {name} | {row['mib']} MiB | {row['questions']} | {' | '.join(cells)} | {others} |"
    yield from (
        "",
        "The last column compares the next token after the last prompts with that of a server without a cache. On the "
        "dense model the gateway processes the last question once more where that takes less time than a new file of "
        "the whole conversation; a stock server with as much memory for its own cache recomputes nothing there.",
    )


def _again(row: Mapping[str, Any]) -> str:
    samples = row["again"]["samples"]
    return f"{sum(samples) / len(samples):,.0f}, at most {max(samples):,.0f}"


def _ms(row: Mapping[str, Any]) -> str:
    return f"{row['median']:,.1f} ({row['min']:,.1f} to {row['max']:,.1f})"
