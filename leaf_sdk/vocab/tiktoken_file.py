r"""tiktoken's files to the parts of a tokenizer: `*.tiktoken` rank files, and Mistral's `tekken.json`.

A rank file holds byte strings and their ranks, and nothing else: whoever builds a map from one names the cut and the
special tokens. A tekken.json holds all of it. tiktoken joins the neighbours that have the lowest rank together, which
`score_merges` turns into merges. Ids are those of `tiktoken` and `mistral-common`.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, cast

from leaf_sdk.errors import MapUnsupported, NotAMap

from .byte_level import ALPHABET, missing_bytes
from .pre_tokenizers import GPT2, PreTokenizer
from .score_merges import ranked_merges
from .tokenizer import Tokenizer, by_id

_CI = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_HIGH, _LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"

CUTS: Mapping[str, PreTokenizer] = {
    "gpt2": GPT2,
    "cl100k": PreTokenizer(_CI + rf"|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|" + _REST),
    "qwen": PreTokenizer(_CI + rf"|{_LEAD}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|" + _REST),
    "o200k": PreTokenizer(
        rf"{_LEAD}{_HIGH}*{_LOW}+{_CI}?|{_LEAD}{_HIGH}+{_LOW}*{_CI}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|"
        + _REST
    ),
}
"""The cuts of tiktoken's encodings, by name; `cl100k` is also Llama 3's."""

_TEKKEN_SPECIAL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
"""The first special tokens of files that list none, as `mistral-common` names them."""


def looks_like_ranks(data: bytes) -> bool:
    """Return whether bytes may be a rank file: base64, a space, a number."""
    token, _, rank = data[:4096].partition(b"\n")[0].partition(b" ")
    return bool(token) and rank.strip().isdigit() and token.rstrip(b"=").replace(b"+", b"").replace(b"/", b"").isalnum()


def read_ranks(data: bytes, cut: PreTokenizer | None, special_tokens: Mapping[str, int]) -> Tokenizer:
    """Read the parts of a rank file.

    Args:
        data: the file's bytes.
        cut: how text is cut, which the file does not say; see `CUTS`.
        special_tokens: ids by their text; the file has none.

    Raises:
        MapUnsupported: no cut was named, or the ranks are not an order of merges.
        NotAMap: the file is damaged.
    """
    if cut is None:
        what = "a tiktoken file without a cut"
        raise MapUnsupported(
            f"{what} is refused: the file does not say how text is cut; choose one of {sorted(CUTS)}", what=what
        )
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.split(b"\n"), start=1):
        token, _, rank = line.strip().partition(b" ")
        if token:
            try:
                ranks[base64.b64decode(token, validate=True)] = int(rank)
            except (binascii.Error, ValueError) as error:
                raise NotAMap(f"line {number} is {line[:60]!r}, expected base64 and a rank ({error})") from error
    return _parts(ranks, ranks, cut, special_tokens)


def read_tekken(document: Mapping[str, Any]) -> Tokenizer:
    """Read the parts of a parsed tekken.json; its ids are ranks, shifted by the number of special tokens.

    Raises:
        MapUnsupported: the ranks are not an order of merges.
        NotAMap: the file is damaged.
    """
    try:
        config = document["config"]
        count, size = int(config["default_num_special_tokens"]), int(config["default_vocab_size"])
        rows = cast("list[dict[str, Any]]", document["vocab"])[: size - count]
        ranks = {base64.b64decode(row["token_bytes"], validate=True): int(row["rank"]) for row in rows}
        listed = cast("list[dict[str, Any]]", document.get("special_tokens") or [])
        named = {int(row["rank"]): str(row["token_str"]) for row in listed} or dict(enumerate(_TEKKEN_SPECIAL))
        cut = PreTokenizer(str(config["pattern"]))
    except (KeyError, TypeError, ValueError) as error:
        raise NotAMap(f"the tekken.json is damaged: a field is missing or invalid ({error})") from error
    special = {named.get(number, f"<SPECIAL_{number}>"): number for number in range(count)}
    return _parts(ranks, {token: rank + count for token, rank in ranks.items()}, cut, special)


def _parts(
    ranks: Mapping[bytes, int], ids: Mapping[bytes, int], cut: PreTokenizer, special_tokens: Mapping[str, int]
) -> Tokenizer:
    spelled = {_spell(token): token for token in ranks}
    if missing_bytes(spelled):
        raise NotAMap(f"byte {missing_bytes(spelled)[0]} has no rank, expected all 256: the file is damaged")
    found = ranked_merges({text: -float(ranks[token]) for text, token in spelled.items()})
    vocab = {text: ids[token] for text, token in spelled.items()}
    # A special token may be spelled like an ordinary one; it is then kept out of the vocabulary.
    own = {text: number for text, number in special_tokens.items() if text not in vocab}
    return Tokenizer(
        vocab=by_id(vocab | own),
        special_tokens=by_id(special_tokens),
        merges=found.merges,
        pre_tokenizer=cut,
        # tiktoken looks up a whole piece first, which only matters for tokens that merging does not reach.
        ignore_merges=bool(found.unreached),
    )


def _spell(token: bytes) -> str:
    return "".join([ALPHABET[byte] for byte in token])
