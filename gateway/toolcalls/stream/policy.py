"""What becomes of faulty calls: the choices that a stream's owner has.

The defaults lose nothing and judge nothing: what can be read as a call is one, what can't is content. Knows nothing of
how the choices are carried out.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Policy:
    """The choices for one stream."""

    unknown_tool: Literal["call", "content"] = "call"
    """A call of a tool that the request does not offer: reported like any other, or passed on as content."""
    malformed: Literal["content", "drop"] = "content"
    """The text of a region that breaks its format, from the call that can't be read: passed on as content, or dropped
    up to the region's closing marker (without one, up to the next region). A diagnostic says so either way."""
    truncated: Literal["keep", "drop"] = "keep"
    """A call that the stream's end cuts off: reported as far as it arrived, or dropped, for which every call is held
    until it is whole. A diagnostic says so either way."""
    text_after_call: Literal["content", "drop"] = "content"
    """Content after the first reported call: emitted or dropped."""
    answered: Collection[str] = ()
    """Tools whose calls get an answer even where they can't be read: such a call is closed, with its `flaw`, and its
    text is dropped in the same way."""
