"""`codec-gateway keys`: make, list and revoke API keys.

Turns flags into records of `keys.toml`, and the records into a table. A key is shown once, when it is made; a running
gateway accepts it from the next request on. It decides nothing: `gateway.config` says where the file is,
`gateway.serve.auth.api_keys` what a key is, and keeps the file.
"""

import json as jsonlib
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.config.load import load_config
from gateway.errors import ConfigError
from gateway.serve.auth.api_keys import KeyFile, KeyRecord, check_pattern, digest_of, new_key

_SPAN: Final = re.compile(r"(\d{1,5})([hdw])")
_UNITS: Final = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}

keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke API keys.")

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="The configuration of `serve` (default: codec-gateway.toml here, if there is one)."
    ),
]
Keys = Annotated[
    Path | None, typer.Option("--keys", help="File with the keys.", show_default="keys.toml beside the configuration")
]


@keys.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the key in the audit log.")],
    server: Annotated[
        list[str] | None, typer.Option(help="A server that it may use; repeat the option for more.", show_default="all")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            help="A tool that it may call, where `*` stands for anything; repeat the option for more.",
            show_default="all",
        ),
    ] = None,
    rate: Annotated[int, typer.Option(min=0, help="Requests per minute; 0: no limit.")] = 0,
    concurrency: Annotated[int, typer.Option(min=0, help="Requests at a time; 0: no limit.")] = 0,
    expires: Annotated[
        str | None, typer.Option(help="How long it is valid: 12h, 30d, 52w.", show_default="for ever")
    ] = None,
    config: Config = None,
    file: Keys = None,
) -> None:
    """Make a key and print it; it is never shown again. A running gateway accepts it from the next request on.

    Example: codec-gateway keys add laptop --server time --rate 120 --expires 30d
    """
    settings = load_config(config, {"serve.keys": file})
    known = {upstream.name for upstream in settings.upstreams}
    if strange := [each for each in server or [] if known and each not in known]:
        raise ConfigError(f"no server is called {strange[0]!r}: the servers are {', '.join(sorted(known))}")
    made, now = new_key(), datetime.now(UTC).replace(microsecond=0)
    record = KeyRecord(
        name=name,
        digest=digest_of(made),
        created=now,
        expires=None if expires is None else now + read_span(expires),
        servers=tuple(map(check_pattern, server)) if server else None,
        tools=tuple(map(check_pattern, tool)) if tool else None,
        rate=rate,
        concurrency=concurrency,
    )
    _file_of(settings.serve.keys).add(record)
    typer.echo(made)
    typer.echo("It is shown only this once. Clients send it as 'Authorization: Bearer KEY'.", err=True)


@keys.command(name="list")
def list_keys(
    config: Config = None,
    file: Keys = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the names of the keys and what each may do."""
    records = _file_of(load_config(config, {"serve.keys": file}).serve.keys).read().values()
    rows = {record.name: _describe(record) for record in records}
    if json:
        typer.echo(jsonlib.dumps(rows, indent=2))
        return
    table = Table("name", "servers", "tools", "requests a minute", "at a time", "expires", box=None)
    for name, row in rows.items():
        cells = (" ".join(row["servers"] or ["all"]), " ".join(row["tools"] or ["all"]))
        limits = (str(row["rate"] or "any"), str(row["concurrency"] or "any"))
        end = f"{row['expires'] or 'never'}{' (expired)' if row['expired'] else ''}"
        table.add_row(*map(Text, (name, *cells, *limits, end)))
    Console(markup=False, highlight=False, emoji=False).print(table if rows else "no keys")


@keys.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The name that the key was given.")],
    config: Config = None,
    file: Keys = None,
) -> None:
    """Revoke a key. A running gateway refuses it from the next request on."""
    _file_of(load_config(config, {"serve.keys": file}).serve.keys).revoke(name)
    typer.echo(f"{name} is revoked")


def read_span(text: str) -> timedelta:
    """`12h`, `30d` or `52w` as a span of time. Raises `ConfigError`."""
    match = _SPAN.fullmatch(text)
    if match is None or not int(match[1]):
        raise ConfigError(f"--expires {text!r}: expected hours, days or weeks, such as 12h, 30d or 52w")
    return int(match[1]) * _UNITS[match[2]]


def _file_of(path: Path | None) -> KeyFile:
    if path is None:
        raise ConfigError("no key file is configured: name one with --keys")
    return KeyFile(path)


def _describe(record: KeyRecord) -> dict[str, Any]:
    return {
        "created": record.created.isoformat(),
        "expires": None if record.expires is None else record.expires.isoformat(),
        "expired": record.expired(datetime.now(UTC)),
        "servers": None if record.servers is None else list(record.servers),
        "tools": None if record.tools is None else list(record.tools),
        "rate": record.rate,
        "concurrency": record.concurrency,
    }
