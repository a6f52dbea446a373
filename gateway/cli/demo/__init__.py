"""`codec-gateway demo`: the whole token loop on a real model, compared with the usual way of using text."""

import json as jsonlib
import sys
from typing import TYPE_CHECKING, Annotated

import anyio
import typer
from rich.console import Console

from gateway.cli.demo.second_act import play
from gateway.cli.demo.second_transcript import second_act_as_json, show_second_act
from gateway.cli.demo.story import tell
from gateway.cli.demo.transcript import show_story, story_as_json
from gateway.cli.model import need_model
from gateway.config import EngineConfig
from gateway.observe.logs import configure_logging

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["demo"]


def demo(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the transcript.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error; the log goes to stderr.")] = "error",
) -> None:
    """Ask a real model the time, through a leaf tool and a plain one, and show what the token path saves.

    Then an application that runs its own tool holds a conversation through the gateway, and without it.

    Everything runs on this machine: llama.cpp with SmolLM2-135M, which is fetched the first time, and two MCP servers.
    """
    configure_logging(level=log_level)
    need_model(EngineConfig(kind="embedded"))
    console = Console(stderr=True, highlight=False)
    with console.status("starting") as status:

        def on_terminal(step: str) -> None:
            status.update(step)

        def on_lines(step: str) -> None:
            print(f"... {step}", file=sys.stderr, flush=True)  # noqa: T201

        progress: Callable[[str], None] = on_terminal if console.is_terminal else on_lines
        story = anyio.run(tell, progress, backend_options={"use_uvloop": True})
        progress("an application with a tool of its own, through the gateway and without it")
        act = anyio.run(play, backend_options={"use_uvloop": True})
    if json:
        told = {**story_as_json(story), "own_tool": second_act_as_json(act)}
        typer.echo(jsonlib.dumps(told, ensure_ascii=False, indent=2))
    else:
        page = Console(highlight=False)
        show_story(story, page)
        show_second_act(act, page)
