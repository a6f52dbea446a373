"""`codec-leaf map verify`: a map compared with its hash, with itself, with an engine or with a tokenizer.json.

Prints what differs, and decides nothing but the exit code: 0 if everything agrees, 1 if something does not.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from leaf_sdk.errors import NotAMap
from leaf_sdk.fetch import open_map
from leaf_sdk.testing.samples import samples
from leaf_sdk.vocab import TokenMap
from leaf_sdk.vocab.agreement import Agreement, Difference, compare_specials, compare_texts
from leaf_sdk.vocab.byte_level import missing_bytes
from leaf_sdk.vocab.encoding import SPACE

_SHOWN = 5


def verify(
    source: Annotated[str, typer.Argument(help="A Codec map, a tokenizer's file, or an https address of a map.")],
    expected: Annotated[str | None, typer.Option("--hash", help="The hash that the map must have.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="A running llama.cpp server to compare with, http://host:port.")
    ] = None,
    against: Annotated[Path | None, typer.Option(help="A tokenizer.json to compare with.")] = None,
    count: Annotated[int, typer.Option("--samples", min=1, help="How many texts to compare.")] = 500,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check that a map matches its hash, decodes what it encodes, and gives the ids of an engine or a tokenizer."""
    token_map = open_map(source, expected)
    results = {"round trip": _round_trip(token_map, count)}
    if engine is not None:
        results |= _with_engine(token_map, engine, count)
    if against is not None:
        results["tokenizer.json"] = compare_texts(token_map, _library(against), samples(count))
    report = {"id": token_map.id, "hash": token_map.map_id} | {name: _summary(each) for name, each in results.items()}
    if as_json:
        typer.echo(json.dumps(report, ensure_ascii=False))
    else:
        _print(token_map, results)
    raise typer.Exit(1 if any(each.differences for each in results.values()) else 0)


def _round_trip(token_map: TokenMap, count: int) -> Agreement:
    """Find texts whose ids do not decode to them, or include a special id; none are tried if decoding is not exact."""
    lost = bytes(missing_bytes(token_map.vocab)) if token_map.encoder == "byte_level" else b""
    texts = [text for text in samples(count) if token_map.metaspace is None or SPACE not in text]
    wrong: list[Difference] = []
    for text in texts if token_map.exact_decode else []:
        ids = token_map.encode(text)
        # A vocabulary that can't spell a byte drops it, as its engine does.
        if token_map.decode_bytes(ids) != text.encode().translate(None, lost) or token_map.special_ids & set(ids):
            wrong.append(Difference(text, ids, token_map.encode(token_map.decode(ids))))
    return Agreement(len(texts) if token_map.exact_decode else 0, 0, wrong)


def _with_engine(token_map: TokenMap, url: str, count: int) -> dict[str, Agreement]:
    from leaf_sdk.fetch.engine import EngineTokenizer

    with EngineTokenizer(url) as engine:
        specials = compare_specials(token_map, engine.specials)
        return {
            "engine's special tokens": Agreement(len(token_map.special_texts), 0, specials),
            "engine": compare_texts(token_map, engine.ordinary, samples(count)),
        }


def _library(path: Path) -> Callable[[str], list[int]]:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception for anything that it can't read
        raise NotAMap(f"{str(path)!r} is not a tokenizer.json: {error}") from error
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def _summary(agreement: Agreement) -> dict[str, Any]:
    shown = agreement.differences[:_SHOWN]
    return {
        "compared": agreement.compared,
        "left_out": agreement.left_out,
        "different": len(agreement.differences),
        "examples": [{"text": each.text, "map": each.ours, "other": each.theirs} for each in shown],
    }


def _print(token_map: TokenMap, results: dict[str, Agreement]) -> None:
    typer.echo(f"{token_map.id}  {token_map.map_id}")
    for name, agreement in results.items():
        left_out = f", {agreement.left_out} left out" if agreement.left_out else ""
        typer.echo(f"{name}: {len(agreement.differences)} of {agreement.compared} differ{left_out}")
        for each in agreement.differences[:_SHOWN]:
            typer.echo(f"  {each.text[:80]!r}\n    map    {each.ours[:20]}\n    other  {each.theirs[:20]}")
