"""The command `codec-leaf`: build a map from a model, name a map, show what is in one (extra `cli`).

Prints and decides nothing: every verb is one call into `fetch` and `vocab`. Errors of the SDK end as one line on
stderr and exit code 3; wrong arguments as typer's own message and 2.
"""

from pathlib import Path
from typing import Annotated

import typer

from leaf_sdk.errors import CodecError
from leaf_sdk.fetch import build_from, map_bytes
from leaf_sdk.vocab import load_map, map_digest
from leaf_sdk.vocab.byte_level import missing_bytes

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Token maps for leaf tools.")
map_app = typer.Typer(no_args_is_help=True, help="Build, name and show token maps.")
app.add_typer(map_app, name="map")

Source = Annotated[str, typer.Argument(help="A Codec map, GGUF file or tokenizer.json, or an https address of a map.")]


@app.callback()
def root() -> None:
    """Token maps for leaf tools."""


@map_app.command()
def build(
    source: Annotated[Path, typer.Argument(help="A GGUF file or a Hugging Face tokenizer.json.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the map goes.")],
    name: Annotated[
        str | None, typer.Option("--id", help="The map's id, org/family; taken from the file if unset.")
    ] = None,
) -> None:
    """Build a map from a model's own tokenizer and print its hash."""
    data = build_from(source, id=name)
    load_map(data)
    try:
        output.write_bytes(data)
    except OSError as error:
        raise CodecError(
            f"output {str(output)!r} can't be written: {error.strerror}; name a file in a folder that exists"
        ) from error
    typer.echo(map_digest(data))


@map_app.command(name="hash")
def name_map(source: Source) -> None:
    """Print the hash that names a map: what goes into CODEC_MAP_HASH."""
    typer.echo(map_digest(map_bytes(source)))


@map_app.command()
def show(source: Source) -> None:
    """Show what a map holds."""
    token_map = load_map(map_bytes(source))
    calls = token_map.tool_calling
    lost = missing_bytes(token_map.vocab)
    rows = {
        "id": token_map.id,
        "hash": token_map.map_id,
        "ids": f"{len(token_map)} ({len(token_map.special_ids)} special)",
        "merges": str(len(token_map.merges)),
        "pieces": " then ".join(token_map.pre_tokenizer.stages) if token_map.pre_tokenizer else "none",
        "normalizer": token_map.normalizer or "none",
        "tool calls": f"{calls.convention}: {calls.start} ... {calls.end}" if calls else "not declared",
        "bytes it can't spell": " ".join(f"{byte:02x}" for byte in lost) or "none",
    }
    for label, value in rows.items():
        typer.echo(f"{label:>20}  {value}")
