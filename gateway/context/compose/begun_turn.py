"""The ids of a text with which a client begins the model's turn (`continue_final_message`).

The text is a client's, so none of it becomes a control token, but for one: a whole block of reasoning at its beginning
(`<think>...</think>`) is written with the markers of the format, once opened where the template opens it already.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.parser import parser_for
from gateway.toolcalls.stream.output_events import Content, Event, Reasoning
from leaf_sdk.vocab import TokenMap

_NEXT: Final = "."
"""Stands for what the model writes next."""


def begun_ids(text: str, tail: str, fmt: Format, token_map: TokenMap) -> list[int] | None:
    """The ids of the text; None where the model would continue it as reasoning. `tail`: the end of the prompt."""
    following = token_map.encode(_NEXT)
    for ids, rest in _readings(text, tail, fmt, token_map):
        events = _events([*ids, *following], tail, fmt, token_map)
        said = "".join(event.text for event in events if isinstance(event, Content))
        if said.strip() == f"{rest}{_NEXT}".strip():
            return ids
    plain = token_map.encode(text)
    reasons = any(isinstance(event, Reasoning) for event in _events(plain, tail, fmt, token_map))
    return None if reasons else plain


def _events(ids: Sequence[int], tail: str, fmt: Format, token_map: TokenMap) -> list[Event]:
    parser = parser_for(fmt, token_map, (), prompt_tail=tail)
    return [*parser.feed(ids), *parser.close()]


def _readings(text: str, tail: str, fmt: Format, token_map: TokenMap) -> Iterator[tuple[list[int], str]]:
    """The text with reasoning at its beginning, up to each of the markers that may end it, and the text behind it."""
    words = text.lstrip()
    opening = max((marker for marker in fmt.markers if words.startswith(marker)), key=len, default="")
    opened = token_map.encode(opening, specials=True)
    within = _events([*opened, *token_map.encode(_NEXT)], "" if opening else tail, fmt, token_map)
    if not any(isinstance(event, Reasoning) for event in within):
        return
    if opening:
        words = words.removeprefix(opening)
        if tail.rstrip().endswith(opening):
            opened, words = [], words.removeprefix("\n") if tail.endswith("\n") else words
    for marker in fmt.markers:
        before, found, after = words.partition(marker)
        if found:
            closing = token_map.encode(marker, specials=True)
            yield [*opened, *token_map.encode(before), *closing, *token_map.encode(after)], after
