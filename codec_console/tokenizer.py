"""Tokenizer: a pasted text as accepted maps cut it, with special tokens read as text and as control tokens.

Turns a submitted form into chips. The text is not kept.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import anyio.to_thread
from starlette.responses import Response

from codec_console.cutting import Cut, cut_text
from codec_console.visit import Form, Page, PageGroup, Visit
from leaf_sdk.errors import CodecError
from leaf_sdk.vocab import TokenMap

_LONGEST: Final = 4000
"""Maximum characters of a text."""


class Side(NamedTuple):
    """How one map cuts a text."""

    token_map: TokenMap
    as_text: Cut
    as_control: Cut
    same: bool
    """Whether both cuts have the same ids, since the text spells no special token."""


class Tokenizer(PageGroup):
    """The page of the tokenizer."""

    def pages(self) -> Sequence[Page]:
        """The page and its path."""
        return (Page("/console/tokenizer", self._show, ("GET", "POST")),)

    async def _show(self, visit: Visit) -> Response:
        maps = {key: each for key, each in self._sources.engines.maps.accepted.items() if each.can_encode}
        # Browsers send each line break of a form as two characters.
        text = visit.form.get("text", "").replace("\r\n", "\n")
        sides: list[Side] = []
        problem = ""
        if len(text) > _LONGEST:
            problem = f"the text has {len(text)} characters; this page takes at most {_LONGEST}"
        elif text:
            try:
                sides = await anyio.to_thread.run_sync(_cut, _chosen(maps, visit.form), text)
            except CodecError as error:
                problem = str(error)
        return self._render(
            "tokenizer.html",
            visit,
            maps=maps,
            text=text[:_LONGEST],
            longest=_LONGEST,
            sides=sides,
            problem=problem,
            first=visit.form.get("first", ""),
            second=visit.form.get("second", ""),
        )


def _chosen(maps: dict[str, TokenMap], form: Form) -> list[TokenMap]:
    """The maps that the form names, each once; the first accepted map where it names none."""
    named = [maps[key] for key in dict.fromkeys((form.get("first", ""), form.get("second", ""))) if key in maps]
    return named or list(maps.values())[:1]


def _cut(maps: Sequence[TokenMap], text: str) -> list[Side]:
    sides: list[Side] = []
    for n, token_map in enumerate(maps):
        other = maps[1 - n] if len(maps) > 1 else None
        as_text = cut_text(token_map, text, other)
        as_control = cut_text(token_map, text, other, specials=True)
        same = token_map.encode(text) == token_map.encode(text, specials=True)
        sides.append(Side(token_map, as_text, as_control, same))
    return sides
