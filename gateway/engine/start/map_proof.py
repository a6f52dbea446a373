"""Proof that a token map and the running engine use the same tokenizer.

Compares sizes, marker ids and the ids of a battery of strings, chosen where tokenizers differ: digits, blanks, line
ends, scripts, emoji, combining marks, contractions, code. A map that fails is never used with the engine: its ids would
mean other words. Control tokens that a map leaves out are found by asking the engine, and count as special; they are
found before the strings are compared, as a map takes them for text. Many texts go into one request: the whole proof
belongs on one connection, and llama.cpp's server ends a connection after about a hundred.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gateway.engine.interface import EngineFacts
from gateway.errors import MapDiffers
from leaf_sdk.vocab import TokenMap

BATTERY: tuple[str, ...] = (
    "Hello, world! It's the cat's 3rd life; they'll see, we've said I'm OK.",
    "IT'S THE CAT'S, WE'LL SEE",
    "1234567890 3.14159 0x1F 2026-11-21T14:37:05+01:00",
    "   leading, trailing   ",
    "a  b   c    d\te\t\tf",
    "line\nline\n\nline\r\nline\r\n\r\n\n",
    "def f(x: int) -> dict[str, int]:\n    return {'x': x ** 2}  # square\n",
    '{"name": "get_weather", "arguments": {"city": "Zürich", "days": 3}}',
    "Zürich, Ærø, Łódź, Αθήνα, Москва, תל אביב, القاهرة, नई दिल्ली, กรุงเทพ",
    "東京は晴れ。北京天气怎么样?서울의 날씨",
    "😀👩‍👩‍👧‍👦🏳️‍🌈🇨🇭 e\u0301 n\u0303 \u212b",
    "\u00a0\u2003\u200b\ufeff\u00ad",
    "\x00\x01\x07\x1b[31m\x7f",
    "<|not_a_token|> <tool_call> </s> [INST]",
    "ſtraße ﬁ ½ ² Ⅷ ١٢٣",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
)


class Tokenizer(Protocol):
    """The part of an engine that a proof needs."""

    async def tokenize(self, text: str, *, specials: bool) -> list[int]:
        """See `Provable`."""
        ...

    async def tokenize_each(self, texts: Sequence[str], *, specials: bool) -> list[list[int]]:
        """See `Provable`."""
        ...


@dataclass(frozen=True, slots=True)
class PreparedMap:
    """A map and what its proof needs. Make it with `prepared_map`, before anything is asked of the engine."""

    token_map: TokenMap
    candidates: Mapping[str, int]
    """Entries that may be special although the map does not list them as such."""
    expected: TokenMap
    """The map as the proof is expected to leave it, ready to encode: with the control tokens that were found before."""


def prepared_map(token_map: TokenMap, found_before: Mapping[str, int] | None = None) -> PreparedMap:
    """Work out what the proof of a map needs, which takes seconds on a slow machine.

    A llama.cpp server closes a connection on which nothing is asked for five seconds, and the proof needs a single one.

    `found_before`: control tokens that an engine had besides the map's. The proof looks for them anew; if it finds the
    same ones, no second encoder has to be built.
    """
    candidates = _candidates(token_map)
    known = {token: i for token, i in (found_before or {}).items() if candidates.get(token) == i}
    expected = replace(token_map, special_tokens={**token_map.special_tokens, **known}) if known else token_map
    for sample in BATTERY:
        expected.encode(sample)
    return PreparedMap(token_map, candidates, expected)


async def proven_map(engine: Tokenizer, facts: EngineFacts, own: PreparedMap) -> TokenMap:
    """Return the map with every control token of the engine among its special tokens, if it fits the engine.

    Raises `MapDiffers`, with the first text that differs and both id lists, if it does not.
    """
    token_map = own.token_map
    if facts.vocabulary is not None and facts.vocabulary < len(token_map):
        raise _differs(facts, token_map, f"<vocabulary of {len(token_map)} ids>", [len(token_map)], [facts.vocabulary])
    markers = sorted(token_map.special_texts.items(), key=lambda item: item[1])
    if await engine.tokenize("".join(text for text, _ in markers), specials=True) != [i for _, i in markers]:
        await _compare(engine, facts, token_map, {text: [i] for text, i in markers}, specials=True)
    whole = await with_all_specials(engine, own, plain=facts.can.plain_tokenize)
    # The engine finds user-defined tokens in any text; to us text is always ordinary.
    samples = [sample for sample in BATTERY if not any(marker in sample for marker in whole.special_texts)]
    # Control tokens that are found change nothing in texts without them, and a `whole` that is new has no encoder yet.
    encoder = whole if whole is own.expected else token_map
    await _compare(engine, facts, token_map, {sample: encoder.encode(sample) for sample in samples}, specials=False)
    return whole


async def with_all_specials(engine: Tokenizer, own: PreparedMap, *, plain: bool = True) -> TokenMap:
    """The map with every control token of the engine among its special tokens, whatever the map says.

    A control token is one that a marker in a template gives and ordinary text does not. One request shows the
    candidates, and a second one confirms all of them at once. `plain`: whether the engine's tokenizer can leave special
    tokens off.
    """
    token_map, candidates = own.token_map, own.candidates
    if not candidates:
        return token_map
    reached = set(await engine.tokenize("\n".join(candidates), specials=True))
    suspects = {token: i for token, i in candidates.items() if i in reached}
    if not suspects:
        return token_map
    if await engine.tokenize("".join(suspects), specials=True) != [*suspects.values()]:
        alone = await engine.tokenize_each([*suspects], specials=True)
        suspects = {token: i for (token, i), ids in zip(suspects.items(), alone, strict=True) if ids == [i]}
    # Text can't give a token that the map's own encoder does not make of it; of those that are expected, it may.
    expected = own.expected
    doubtful = {t: i for t, i in suspects.items() if t in expected.special_tokens or expected.encode(t) == [i]}
    text = await (_plain_text if plain else _text_among_text)(engine, token_map, doubtful)
    found = {token: i for token, i in suspects.items() if token not in text}
    tokens = {**token_map.special_tokens, **found}
    if tokens == expected.special_tokens:
        return expected
    return replace(token_map, special_tokens=tokens) if found else token_map


async def _plain_text(engine: Tokenizer, token_map: TokenMap, tokens: Mapping[str, int]) -> set[str]:
    """The tokens that ordinary text gives too, for a tokenizer that can leave special tokens off."""
    del token_map
    given = await engine.tokenize_each([*tokens], specials=False)
    return {token for (token, i), ids in zip(tokens.items(), given, strict=True) if ids == [i]}


async def _text_among_text(engine: Tokenizer, token_map: TokenMap, tokens: Mapping[str, int]) -> set[str]:
    """The same for a tokenizer that can't: unlike text, a special token stays one token next to any neighbours."""
    around = {t: [f"{left}{t}{right}" for left in ("a", t[0]) for right in ("a", t[-1])] for t in tokens}
    texts = [text for several in around.values() for text in several]
    ids = dict(zip(texts, await engine.tokenize_each(texts, specials=True), strict=True))
    return {token for token, several in around.items() if all(ids[text] == token_map.encode(text) for text in several)}


def _candidates(token_map: TokenMap) -> dict[str, int]:
    """Return the candidates of `PreparedMap`.

    A merge never makes a control token. An entry that a merge makes is a candidate only if it has the form of a marker,
    in case the map is wrong.
    """
    made = {left + right for left, right in token_map.merges}
    special = token_map.special_ids
    return {
        token: i
        for token, i in token_map.vocab.items()
        if len(token) > 1 and i not in special and (token not in made or (token[0] in "<[" and token[-1] in ">]"))
    }


async def _compare(
    engine: Tokenizer, facts: EngineFacts, token_map: TokenMap, expected: Mapping[str, list[int]], *, specials: bool
) -> None:
    given = await engine.tokenize_each([*expected], specials=specials)
    for (text, own), ids in zip(expected.items(), given, strict=True):
        if ids != own:
            raise _differs(facts, token_map, text, own, ids)


def _differs(facts: EngineFacts, token_map: TokenMap, sample: str, own: list[int], theirs: list[int]) -> MapDiffers:
    return MapDiffers(
        f"map {token_map.id!r} ({token_map.map_id}) does not fit the tokenizer of the engine's model {facts.model!r}: "
        f"{sample!r} is {own} in the map and {theirs} in the engine; build the map from the model itself (--map auto)",
        sample=sample,
        map_ids=own,
        engine_ids=theirs,
    )
