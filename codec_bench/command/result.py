"""A measurement as a person reads it: a table of servers, how they compare, what went wrong.

Prints the report of `codec_bench.report`. On a narrow terminal the columns that matter least are left out. What
servers said is escaped. It measures nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.console import Console

from codec_bench.picture import number
from gateway.cli.terminal import Cell, Column, print_table, say

_SERVERS: Final = (
    Column("server"),
    Column("answers", 9, "right"),
    Column("errors", 10, "right"),
    Column("first ms", 0, "right"),
    Column("p99", 7, "right"),
    Column("between ms", 8, "right"),
    Column("p99", 4, "right"),
    Column("whole ms", 8, "right"),
    Column("p99", 3, "right"),
    Column("tokens/s", 6, "right"),
    Column("B/token", 5, "right"),
    Column("smaller", 1, "right"),
    Column("prompt", 2, "right"),
    Column("reused", 4, "right"),
    Column("CPU ms", 2, "right"),
)
_COMPARED: Final = (
    Column("server"),
    Column("first", 0, "right"),
    Column("a token", 2, "right"),
    Column("whole", 3, "right"),
    Column("bytes", 1, "right"),
    Column("same ids", 4, "right"),
    Column("same text", 5, "right"),
)
_BY_ANSWER: Final = (
    Column("server"),
    Column("asked for", 9, "right"),
    Column("answers", 3, "right"),
    Column("tokens", 4, "right"),
    Column("first ms", 6, "right"),
    Column("whole ms", 5, "right"),
    Column("body B", 8, "right"),
    Column("B/token", 7, "right"),
)
_BUSY: Final = 0.8
"""The part of a core above which this program's own load distorts what it measures."""


def print_result(console: Console, report: Mapping[str, Any]) -> None:
    """Print the result of a run."""
    complete = print_table(console, _SERVERS, [_server_row(server) for server in report["servers"]])
    if report["by_answer"]:
        console.print()
        say(console, "medians by the number of tokens asked for", "dim")
        complete &= print_table(console, _BY_ANSWER, [_answer_row(each) for each in report["by_answer"]])
    if any(comparison["ratios"] for comparison in report["comparisons"]):
        console.print()
        first, apart = report["servers"][0]["url"], report["asking"]["apart"]
        say(console, f"compared with {first}, request by request: medians of the ratios (95 % intervals)", "dim")
        complete &= print_table(
            console, _COMPARED, [_compared_row(each, apart=apart) for each in report["comparisons"]]
        )
    if not complete:
        say(console, "(a wider terminal or --json shows more)", "dim")
    for line in _remarks(report):
        say(console, f"! {line}", "yellow")


def _server_row(server: Mapping[str, Any]) -> list[Cell | str]:
    failed = server["failed"]
    prompt = server["prompt"]
    return [
        server["url"],
        str(server["answered"]),
        Cell(str(failed), "red" if failed else ""),
        *_figures(server["first_ms"]),
        *_figures(server["between_ms"]),
        *_figures(server["whole_ms"]),
        _figure(server["tokens_a_second"]),
        _figure(server["bytes_a_token"] and server["bytes_a_token"]["p50"]),
        f"{server['compression']:.1f}x" if server["compression"] else "-",
        _figure(server["prompt_tokens"] and server["prompt_tokens"]["p50"]),
        "-" if prompt is None or prompt["reused"] is None else f"{prompt['reused']:.1%}",
        _figure(server["cpu_ms"]),
    ]


def _figures(spread: Mapping[str, Any] | None) -> tuple[str, str]:
    return ("-", "-") if spread is None else (number(spread["p50"]), number(spread["p99"]))


def _figure(value: float | None) -> str:
    return "-" if value is None else number(value)


def _answer_row(group: Mapping[str, Any]) -> list[Cell | str]:
    columns = ("completion_tokens", "first_ms", "whole_ms", "body_bytes", "bytes_a_token")
    figures = (_figure(group[name] and group[name]["p50"]) for name in columns)
    return [group["url"], str(group["answer_tokens"]), str(group["answered"]), *figures]


def _compared_row(comparison: Mapping[str, Any], *, apart: bool) -> list[Cell | str]:
    ratios = [_ratio(comparison["ratios"].get(name)) for name in ("first", "a_token", "whole", "socket_bytes")]
    # Servers that were asked for different things give different answers.
    same = ("-", "-") if apart else (_same(comparison["ids"]), _same(comparison["text"]))
    return [comparison["url"], *ratios, *same]


def _ratio(ratio: Mapping[str, Any] | None) -> str:
    if ratio is None:
        return "-"
    spread = "" if ratio["low"] is None else f" ({ratio['low']:.2f} to {ratio['high']:.2f})"
    return f"{ratio['ratio']:.2f}x{spread}"


def _same(counts: Mapping[str, int]) -> str:
    both = counts["same"] + counts["other"]
    return f"{counts['same']} of {both}" if both else "-"


def _remarks(report: Mapping[str, Any]) -> Iterator[str]:
    for server in report["servers"]:
        for label, error in server["errors"].items():
            yield f"{server['url']}: {error['count']} x {label}: {error['first']}"
        if server["unfinished"]:
            yield f"{server['url']}: {server['unfinished']} requests were cut off by the end of the run"
    if report["stopped"]:
        yield "the run was ended early: these are the figures until then"
    if report["client"]["core"] > _BUSY and report["seconds"] > 1:
        yield (
            f"this program used {report['client']['core']:.0%} of a core, so it measured partly itself: lower "
            "--clients or --rate"
        )
