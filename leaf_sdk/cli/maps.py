"""`codec-leaf map`: build a map, convert, compare, name, show, verify and publish it.

Prints, and decides nothing: every verb is one call into `fetch` or `vocab`, with its answer printed as lines or as
JSON. Exit code 1 means that two things that should agree do not; errors of the SDK end in 3 (see `leaf_sdk.cli`).
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from leaf_sdk.errors import CodecError
from leaf_sdk.fetch import build_from, map_bytes
from leaf_sdk.vocab import TokenMap, load_map, map_digest
from leaf_sdk.vocab.agreement import compare_maps
from leaf_sdk.vocab.byte_level import missing_bytes
from leaf_sdk.vocab.fields import json_object
from leaf_sdk.vocab.tiktoken_file import CUTS
from leaf_sdk.vocab.write import convert_fields, write_fields

from .verify import verify

map_app = typer.Typer(no_args_is_help=True, help="Build, compare, verify and publish token maps.")
map_app.command()(verify)

EXIT_DIFFERENT = 1

Source = Annotated[str, typer.Argument(help="A Codec map, a tokenizer's file, or an https address of a map.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="The file to write the map to.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@map_app.command()
def build(
    source: Annotated[Path, typer.Argument(help="A GGUF, tokenizer.json, SentencePiece, tiktoken or tekken file.")],
    output: Output,
    name: Annotated[
        str | None, typer.Option("--id", help="The map's id, org/family; by default taken from the file.")
    ] = None,
    cut: Annotated[
        str | None, typer.Option(help=f"How text is cut, which a tiktoken file does not say: {', '.join(CUTS)}.")
    ] = None,
    special: Annotated[
        list[str] | None, typer.Option(help="A special token of a tiktoken file, as TEXT=ID; may be repeated.")
    ] = None,
) -> None:
    """Build a map from a model's own tokenizer and print its hash."""
    if cut is not None and cut not in CUTS:
        raise typer.BadParameter(f"{cut!r} is not one of {', '.join(CUTS)}", param_hint="--cut")
    data = build_from(
        source, id=name, cut=CUTS[cut] if cut else None, special_tokens=dict(map(_special, special or []))
    )
    load_map(data)
    _write(output, data)
    typer.echo(map_digest(data))


@map_app.command()
def convert(
    source: Source,
    output: Output,
    name: Annotated[str | None, typer.Option("--id", help="A new id for the map, org/family.")] = None,
    published_at: Annotated[str | None, typer.Option(help="When the map was published, as an ISO date.")] = None,
    dictionary: Annotated[
        list[str] | None, typer.Option(help="A zstd dictionary, as FORMAT=FILE=URL; may be repeated.")
    ] = None,
) -> None:
    """Rewrite a map as version 2, in canonical form, and print its hash."""
    data = map_bytes(source)
    load_map(data, decode_only=True)
    changed: dict[str, Any] = {"id": name, "published_at": published_at}
    changed["zstd_dictionaries"] = [_dictionary(each) for each in dictionary or []] or None
    fields = convert_fields(json_object(data, "a Codec map"), {k: v for k, v in changed.items() if v is not None})
    written = write_fields(fields)
    load_map(written, decode_only=True)
    _write(output, written)
    typer.echo(map_digest(written))


@map_app.command(name="hash")
def name_map(source: Source) -> None:
    """Print the hash that names a map: what goes into CODEC_MAP_HASH."""
    data = map_bytes(source)
    load_map(data, decode_only=True)
    typer.echo(map_digest(data))


@map_app.command()
def diff(
    first: Source,
    second: Source,
    limit: Annotated[int, typer.Option(help="How many tokens of each kind to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show how the tokens of two maps differ; exit code 1 if the maps are not the same tokenizer."""
    found = compare_maps(*(load_map(map_bytes(each), decode_only=True) for each in (first, second)))
    tables: dict[str, dict[str, object]] = {
        "only in the first": dict(found.only_first),
        "only in the second": dict(found.only_second),
        "another id": {token: f"{a} and {b}" for token, (a, b) in found.moved.items()},
        "special tokens": {token: f"{a} and {b}" for token, (a, b) in found.specials.items()},
    }
    if as_json:
        typer.echo(json.dumps({**tables, "fields": found.fields}, ensure_ascii=False))
    else:
        for label, table in tables.items():
            typer.echo(f"{label}: {len(table)}")
            for token, ids in [*table.items()][:limit]:
                typer.echo(f"  {token!r} {ids}")
        typer.echo(f"other fields: {', '.join(found.fields) or 'none'}")
    raise typer.Exit(EXIT_DIFFERENT if found else 0)


@map_app.command()
def show(source: Source, as_json: AsJson = False) -> None:
    """Show what a map holds."""
    rows = _rows(load_map(map_bytes(source), decode_only=True))
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    for label, value in rows.items():
        typer.echo(f"{label:>20}  {value}")


@map_app.command()
def publish(
    sources: Annotated[list[str], typer.Argument(help="Maps, as files or addresses.")],
    to: Annotated[Path, typer.Option(help="The folder that the origin serves as its root.")],
    origin: Annotated[str, typer.Option(help="The origin's address, https://host.")],
    dictionary: Annotated[
        list[Path] | None, typer.Option(help="A zstd dictionary that a map names; may be repeated.")
    ] = None,
) -> None:
    """Write a .well-known/codec tree, in which others find the maps by name."""
    from leaf_sdk.fetch.publish import publish_maps

    written = publish_maps(
        to,
        origin,
        [map_bytes(source) for source in sources],
        dictionaries=[_read(path) for path in dictionary or []],
        published_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    for path in written:
        typer.echo(path)


@map_app.command()
def fetch(
    origin: Annotated[str, typer.Argument(help="The origin's address, https://host.")],
    name: Annotated[str, typer.Argument(help="The map's name at that origin, org/family.")],
    output: Output,
    expected: Annotated[str | None, typer.Option("--hash", help="The map's hash, if you know it.")] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="Another origin to which a pointer may lead; may be repeated.")
    ] = None,
) -> None:
    """Fetch a map that an origin publishes, and print its hash."""
    from leaf_sdk.fetch import MAX_BYTES, TIMEOUT, default_cache
    from leaf_sdk.fetch.discovery import discover

    data = discover(
        origin,
        name,
        cache=default_cache(),
        expected_hash=expected,
        allow=allow or [],
        max_bytes=MAX_BYTES,
        timeout=TIMEOUT,
    )
    load_map(data, decode_only=True)
    _write(output, data)
    typer.echo(map_digest(data))


@map_app.command(name="list")
def list_maps(
    origin: Annotated[str, typer.Argument(help="The origin's address, https://host.")], as_json: AsJson = False
) -> None:
    """List the maps that an origin publishes: hash and name."""
    from leaf_sdk.fetch import TIMEOUT
    from leaf_sdk.fetch.discovery import read_index

    found = read_index(origin, timeout=TIMEOUT)
    if as_json:
        typer.echo(json.dumps([{"id": each.id, "hash": each.hash, "url": each.url} for each in found]))
        return
    for each in found:
        # The origin's words: what can't be printed is escaped, so that a terminal obeys none of it.
        typer.echo(f"{each.hash}  {''.join(c if c.isprintable() else repr(c)[1:-1] for c in each.id)[:120]}")


def _rows(token_map: TokenMap) -> dict[str, str]:
    calls, space = token_map.tool_calling, token_map.metaspace
    lost = missing_bytes(token_map.vocab) if token_map.encoder == "byte_level" else []
    rows = {
        "id": token_map.id,
        "hash": token_map.map_id,
        "version": token_map.version,
        "published": token_map.published_at or "not declared",
        "ids": f"{len(token_map)} ({len(token_map.special_ids)} special)",
        "encoder": token_map.encoder or "none: tokens are plain text",
        "algorithm": token_map.algorithm or "none: the map only decodes",
        "merges": str(len(token_map.merges)),
        "pieces": " then ".join(token_map.pre_tokenizer.stages) if token_map.pre_tokenizer else "none",
        "normalizer": token_map.normalizer or "none",
        "space before a text": space.prefix if space else "never",
        "tool calls": f"{calls.convention}: {calls.start} ... {calls.end}" if calls else "not declared",
        "zstd dictionaries": ", ".join(each.format for each in token_map.zstd_dictionaries) or "none",
        "bytes it can't spell": " ".join(f"{byte:02x}" for byte in lost) or "none",
    }
    return rows if token_map.metaspace else {k: v for k, v in rows.items() if k != "space before a text"}


def _special(text: str) -> tuple[str, int]:
    token, equals, number = text.rpartition("=")
    if not equals or not token or not number.isdigit():
        raise typer.BadParameter(f"{text!r} is not of the form TEXT=ID", param_hint="--special")
    return token, int(number)


def _dictionary(text: str) -> dict[str, Any]:
    kind, _, rest = text.partition("=")
    path, _, url = rest.partition("=")
    if not url:
        raise typer.BadParameter(f"{text!r} is not of the form FORMAT=FILE=URL", param_hint="--dictionary")
    data = _read(Path(path))
    return {"format": kind, "url": url, "hash": map_digest(data), "size_bytes": len(data)}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CodecError(f"{str(path)!r} can't be read: {error.strerror}") from error


def _write(output: Path, data: bytes) -> None:
    try:
        output.write_bytes(data)
    except OSError as error:
        raise CodecError(
            f"output {str(output)!r} can't be written: {error.strerror}; name a file in a folder that exists"
        ) from error
