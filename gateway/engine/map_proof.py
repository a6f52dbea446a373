"""Proof that a token map and the running engine use the same tokenizer.

Compares sizes, marker ids and the ids of a battery of strings, chosen where tokenizers differ: digits, blanks, line
ends, scripts, emoji, combining marks, contractions, code. A map that fails is never used with the engine: its ids would
mean other words. Control tokens that a map leaves out are found by asking the engine, and count as special.
"""

from dataclasses import replace
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
        """See `Engine`."""
        ...


async def check_map(engine: Tokenizer, facts: EngineFacts, token_map: TokenMap) -> None:
    """Raise `MapDiffers`, with the first string that differs and both id lists, unless `token_map` fits `engine`."""
    if facts.vocabulary is not None and facts.vocabulary < len(token_map):
        raise _differs(facts, token_map, f"<vocabulary of {len(token_map)} ids>", [len(token_map)], [facts.vocabulary])
    await _check_markers(engine, facts, token_map)
    for sample in BATTERY:
        if any(marker in sample for marker in token_map.special_texts):
            continue  # the engine finds user-defined tokens in any text; to us text is always ordinary
        ids = await engine.tokenize(sample, specials=False)
        own = token_map.encode(sample)
        if ids != own:
            raise _differs(facts, token_map, sample, own, ids)


async def with_all_specials(engine: Tokenizer, token_map: TokenMap, *, plain: bool = True) -> TokenMap:
    """The map with every control token of the engine among its special tokens, whatever the map says.

    A control token is one that a marker in a template gives and ordinary text does not. One request shows the
    candidates, and a second one confirms all of them at once: a server may end a connection after a hundred requests,
    and there are models with 256 such tokens. `plain`: whether the engine's tokenizer can leave special tokens off.
    """
    candidates = _candidates(token_map)
    if not candidates:
        return token_map
    reached = set(await engine.tokenize("\n".join(candidates), specials=True))
    suspects = {token: i for token, i in candidates.items() if i in reached}
    together = bool(suspects) and await engine.tokenize("".join(suspects), specials=True) == [*suspects.values()]
    is_text = _is_plain_text if plain else _is_text_among_text
    found = {
        token: i
        for token, i in suspects.items()
        if (together or await engine.tokenize(token, specials=True) == [i])
        and (token_map.encode(token) != [i] or not await is_text(engine, token_map, token, i))
    }
    return replace(token_map, special_tokens={**token_map.special_tokens, **found}) if found else token_map


async def _is_plain_text(engine: Tokenizer, token_map: TokenMap, token: str, token_id: int) -> bool:
    """Whether ordinary text gives the token too, for a tokenizer that can leave special tokens off."""
    del token_map
    return await engine.tokenize(token, specials=False) == [token_id]


async def _is_text_among_text(engine: Tokenizer, token_map: TokenMap, token: str, token_id: int) -> bool:
    """The same for a tokenizer that can't: unlike text, a special token stays one token next to any neighbours."""
    del token_id
    around = [f"{left}{token}{right}" for left in ("a", token[0]) for right in ("a", token[-1])]
    return all([await engine.tokenize(text, specials=True) == token_map.encode(text) for text in around])


def _candidates(token_map: TokenMap) -> dict[str, int]:
    """Entries that may be special although the map does not list them as such.

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


async def _check_markers(engine: Tokenizer, facts: EngineFacts, token_map: TokenMap) -> None:
    markers = sorted(token_map.special_texts.items(), key=lambda item: item[1])
    if await engine.tokenize("".join(text for text, _ in markers), specials=True) == [i for _, i in markers]:
        return
    for text, marker_id in markers:
        ids = await engine.tokenize(text, specials=True)
        if ids != [marker_id]:
            raise _differs(facts, token_map, text, [marker_id], ids)


def _differs(facts: EngineFacts, token_map: TokenMap, sample: str, own: list[int], theirs: list[int]) -> MapDiffers:
    return MapDiffers(
        f"map {token_map.id!r} ({token_map.map_id}) does not fit the tokenizer of the engine's model {facts.model!r}: "
        f"{sample!r} is {own} in the map and {theirs} in the engine; build the map from the model itself (--map auto)",
        sample=sample,
        map_ids=own,
        engine_ids=theirs,
    )
