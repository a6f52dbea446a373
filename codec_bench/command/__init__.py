"""`codec-gateway bench`: measures what answers of servers of OpenAI's API cost, in the same way for each server.

Turns options into a plan, a workload and clients, runs them, prints the result, and writes it as JSON and as a picture.
The measuring is done by `codec_bench`. `gateway/cli/app.py` turns errors into a line and an exit code.
"""

import json as jsonlib
import os
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from codec_bench.command.measuring import measure
from codec_bench.command.preset import bounds_of, scene_of
from codec_bench.command.result import print_result
from codec_bench.exchange import Asking
from codec_bench.lengths import Lengths, read_lengths
from codec_bench.picture import draw
from codec_bench.plan import MOST_ANSWER, MOST_PROMPT, Plan, check_plan, what_would_be_sent
from codec_bench.presets import PRESETS, Scene
from codec_bench.report import report_of
from codec_bench.server import Server, read_servers
from codec_bench.trace import LONGEST_LINE, Recorded, read_trace
from codec_bench.workload import Drawn
from gateway import __version__
from gateway.cli.exit_codes import FAILED, INTERRUPTED, OK
from gateway.cli.terminal import plain_console
from gateway.errors import ConfigError

__all__ = ["bench"]


class Api(StrEnum):
    """Which API of a server is asked."""

    chat = "chat"
    completions = "completions"


class Compression(StrEnum):
    """What an answer may be compressed with."""

    identity = "identity"
    gzip = "gzip"
    br = "br"
    zstd = "zstd"


def bench(
    context: typer.Context,
    urls: Annotated[
        list[str],
        typer.Argument(
            metavar="URL...",
            help="Servers, such as http://127.0.0.1:8600; add #protobuf to ask for frames, #protobuf,br for a coding.",
            show_default=False,
        ),
    ],
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Send the requests of a scene of the Codec reference: {', '.join(PRESETS)}.", show_default=False
        ),
    ] = None,
    requests: Annotated[int, typer.Option(help="Requests to send to each server.")] = 50,
    seconds: Annotated[float, typer.Option(help="Seconds after which the run ends, even if requests are left.")] = 60.0,
    clients: Annotated[
        int, typer.Option(help="Clients that each send their next request once they have their answer.")
    ] = 1,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Conversations to begin per second at each server, answered or not; times count from when one is due.",
            show_default="none",
        ),
    ] = None,
    ramp: Annotated[float, typer.Option(help="Seconds until all clients are active, or the rate is reached.")] = 0.0,
    prompt_tokens: Annotated[
        str,
        typer.Option(help="Approximate length of prompts: 200, uniform:50-400 or lognormal:200:0.5 (median, sigma)."),
    ] = "200",
    answer_tokens: Annotated[str, typer.Option(help="Greatest length of answers, in the same forms.")] = "64",
    turns: Annotated[int, typer.Option(help="Requests per conversation; each repeats what was said before.")] = 1,
    tools: Annotated[
        bool, typer.Option("--tools", help="Have each turn call a tool first, which makes two requests of it.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="Send recorded requests: JSON Lines with messages or prompt_tokens, answer_tokens, at."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random choices: the same seed sends the same requests.")] = 0,
    model: Annotated[str | None, typer.Option(help="Model to ask for.", show_default="the server's first")] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="Where a server's API key is: env:NAME, file:PATH or none; one for each server, in their order.",
            show_default="none",
        ),
    ] = None,
    api: Annotated[Api, typer.Option(help="API to use: chat or completions.")] = Api.chat,
    whole: Annotated[bool, typer.Option("--whole", help="Ask for whole answers instead of streams.")] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Ask for token ids too, and compare them.")] = False,
    apart: Annotated[
        bool, typer.Option("--apart", help="Begin each server's prompts differently, for servers that share an engine.")
    ] = False,
    accept_encoding: Annotated[
        Compression, typer.Option(help="What answers may be compressed with: identity, gzip, br or zstd.")
    ] = Compression.gzip,
    timeout: Annotated[float, typer.Option(help="Seconds that one request may take.")] = 60.0,
    warmup: Annotated[
        int, typer.Option(help="Conversations with each server before the measurement, which do not count.")
    ] = 1,
    json: Annotated[
        Path | None, typer.Option(help="Write the result, with every sample, to this file as JSON.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Write a picture of the result to this file.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Allow servers beyond this machine.")] = False,
) -> None:
    """Measure one server, or several in turn: first token, time between tokens, whole answers, bytes, reuse, errors.

    Any server of OpenAI's API will do. It is asked what the options say and never more than they allow. Ctrl-C ends the
    run and shows what was measured so far. Servers that share an engine find each other's prompts in its cache, unless
    --apart is given.

    Exit code 0: every server answered; 1: one never did; 4: one can't be reached.

    Example: codec-gateway bench http://127.0.0.1:8600 --requests 10 --answer-tokens 16 --svg result.svg
    """
    servers = read_servers(urls, key or [], os.environ)
    asking = Asking(api.value, not whole, tools, ids, apart, seed)
    if preset is None:
        workload = _workload(seed, prompt_tokens, answer_tokens, turns, trace)
    else:
        workload = scene_of(preset, seed, context)
        asking = workload.asking(asking)
        requests, seconds, timeout = bounds_of(workload, requests, seconds, timeout, context)
    plan = Plan(requests, seconds, clients, rate, ramp, timeout, warmup, seed)
    check_plan(plan, len(servers), turns, asking.requests_a_turn)
    _check_choices(plan, asking, turns, trace)
    _check_frames(servers, asking, turns)
    _allow(servers, plan, str(workload.described().get("answer_tokens", answer_tokens)), yes=yes)
    for path in (json, svg):
        _check_folder(path)
    if json is not None and json == svg:
        raise ConfigError(f"--json and --svg name the same file, {str(json)!r}: give each its own")
    started = datetime.now(UTC).isoformat(timespec="seconds")
    run, models = anyio.run(
        measure, servers, workload, asking, plan, model, accept_encoding.value, backend_options={"use_uvloop": True}
    )
    about = {
        "codec_gateway": __version__,
        "started": started,
        "stopped": run.stopped,
        "client": {**_machine(), "core": round(run.load, 4)},
        "plan": plan.described(),
        "workload": workload.described(),
        "asking": {**asdict(asking), "accept_encoding": accept_encoding.value},
    }
    answer_of = workload.answer_of if isinstance(workload, Scene) and workload.differs else None
    report = report_of([each.name for each in servers], models, run.tallies, run.seconds, about, answer_of)
    print_result(plain_console(), report)
    if json is not None:
        _write(json, jsonlib.dumps(report, indent=1) + "\n")
    if svg is not None:
        _write(svg, draw(report))
    if run.stopped:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(OK if all(tally.samples for tally in run.tallies) else FAILED)


def _workload(seed: int, prompt_tokens: str, answer_tokens: str, turns: int, trace: Path | None) -> Drawn | Recorded:
    answer = _lengths("--answer-tokens", answer_tokens, MOST_ANSWER)
    prompt = _lengths("--prompt-tokens", prompt_tokens, MOST_PROMPT)
    return Drawn(seed, prompt, answer, turns) if trace is None else _recorded(trace, seed)


def _lengths(option: str, text: str, ceiling: int) -> Lengths:
    try:
        return read_lengths(text, ceiling)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None


def _recorded(path: Path, seed: int) -> Recorded:
    try:
        with path.open("rb") as file:
            lines = iter(lambda: file.readline(LONGEST_LINE + 1), b"")
            return read_trace(lines, seed, MOST_PROMPT, MOST_ANSWER)
    except OSError as error:
        raise ConfigError(f"--trace: {str(path)!r} can't be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--trace: {str(path)!r}: {error}") from None


def _check_choices(plan: Plan, asking: Asking, turns: int, trace: Path | None) -> None:
    if plan.rate is not None and plan.clients != 1:
        raise ConfigError(
            "--rate and --clients exclude each other: requests are sent by the clock, or as answers arrive"
        )
    if trace is not None and turns != 1:
        raise ConfigError("--trace and --turns exclude each other: a line of a trace contains its own history")
    if asking.tools and asking.api == "completions":
        raise ConfigError("--tools needs --api chat: completions have no tools")


def _check_frames(servers: list[Server], asking: Asking, turns: int) -> None:
    framed = [server.name for server in servers if server.form != "json"]
    if framed and (turns > 1 or asking.tools or not asking.stream):
        raise ConfigError(
            f"{framed[0]}: frames are always streamed, and have no text to continue with: leave out --turns, --tools "
            "and --whole"
        )


def _allow(servers: list[Server], plan: Plan, answer_tokens: str, *, yes: bool) -> None:
    far = [server.name for server in servers if not server.is_here]
    if far and not yes:
        raise ConfigError(
            f"{', '.join(far)}: not on this machine. This run would send {what_would_be_sent(plan, answer_tokens)}. "
            "Add --yes if you may put that load on it"
        )


def _check_folder(path: Path | None) -> None:
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise ConfigError(f"{str(path)!r} can't be written: give a file in a folder that exists")


def _write(path: Path, text: str) -> None:
    whole = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        whole.write_text(text, encoding="utf-8")
        whole.replace(path)
    except OSError as error:
        whole.unlink(missing_ok=True)
        raise ConfigError(f"{str(path)!r} can't be written: {error.strerror}") from None


def _machine() -> dict[str, Any]:
    system = f"{platform.system()} {platform.machine()}"
    return {"cores": os.cpu_count(), "system": system, "python": platform.python_version()}
