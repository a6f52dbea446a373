"""Options that several commands have, each with one name and one explanation."""

from pathlib import Path
from typing import Annotated

import typer

ServedConfig = Annotated[
    Path | None, typer.Option("--config", "-c", help="mcpServers JSON (Claude Desktop, Cursor, VS Code) or TOML.")
]
ConfigOfServe = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="The configuration of `serve` (default: codec-gateway.toml here, if there is one)."
    ),
]
ConfigForAdmin = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="The configuration of `serve`, to find the admin port (default: codec-gateway.toml here).",
    ),
]
AdminPort = Annotated[str | None, typer.Option(help="Address of the admin port.", show_default="http://127.0.0.1:8601")]
ChatTemplateFile = Annotated[
    str | None, typer.Option(help="Chat template: a file (Jinja), or chatml.", show_default="the model's own")
]
