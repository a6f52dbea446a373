"""`codec-gateway demo`: token ids on a real model, and what they save an agent that runs its own tools."""

import json as jsonlib
import sys
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from codec_demo.second_act import play
from codec_demo.second_transcript import second_act_as_json, show_second_act
from codec_demo.story import tell
from codec_demo.transcript import show_story, story_as_json
from gateway.cli.model import need_model
from gateway.cli.until_signal import run_until_signal
from gateway.config import EngineConfig
from gateway.documentation.pages import own_spelling
from gateway.errors import ConfigError
from gateway.observe.logs import configure_logging

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["demo"]

_NEXT = (
    "\nNext: codec-gateway serve --engine embedded starts a gateway with this model (--model FILE.gguf: with yours); "
    "codec-gateway docs README says how to connect an agent or an MCP client to it."
)


def demo(
    short: Annotated[bool, typer.Option("--short", help="Leave out the second part, which takes minutes.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the transcript.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error; the log goes to stderr.")] = "error",
) -> None:
    """Ask a real model the time, through a tool that sends token ids and one that does not, and show the prompt's ids.

    Then an agent that runs its own tools sends the same requests through the gateway and to a plain llama-server.

    Everything runs on this machine: llama.cpp with SmolLM2-135M, which is fetched the first time, and two MCP servers.
    """
    configure_logging(level=log_level)
    need_model(EngineConfig(kind="embedded"))
    # A character that the terminal's encoding lacks is no reason to fail.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        _run(Console(highlight=False), short=short, json=json)
    except KeyboardInterrupt:
        typer.echo("codec-gateway: the demo was interrupted", err=True)
        raise
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(
            f"the demo can't write its temporary files: {error}; name another folder in TMPDIR"
        ) from error


def _run(page: Console, *, short: bool, json: bool) -> None:
    with _progress() as progress:
        story = run_until_signal(tell, progress)
    if not json:
        show_story(story, page)
    act = None
    if not short:
        with _progress() as progress:
            progress(
                "second part: starting the gateway and a plain llama-server; it takes minutes "
                "(codec-gateway demo --short leaves it out)"
            )
            act = run_until_signal(play, progress)
    if json:
        told = story_as_json(story) | ({} if act is None else {"agent": second_act_as_json(act)})
        typer.echo(jsonlib.dumps(told, ensure_ascii=False, indent=2))
    elif act is not None:
        show_second_act(act, page)
    if not json:
        page.print(Text(own_spelling().message(_NEXT), style="dim"))


@contextmanager
def _progress() -> "Generator[Callable[[str], None]]":
    """Yield what shows the present step: in place on a terminal, otherwise a line a step. Both go to stderr."""
    console = Console(stderr=True, highlight=False)
    with console.status("starting") as status:
        yield status.update if console.is_terminal else _say


def _say(step: str) -> None:
    print(f"... {step}", file=sys.stderr, flush=True)  # noqa: T201
