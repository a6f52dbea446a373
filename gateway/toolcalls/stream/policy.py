"""What becomes of calls that are not as they should be: the four choices that a stream's owner has.

The defaults lose nothing and judge nothing: what can be read as a call is one, what can't is content. Knows nothing of
how the choices are carried out.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Policy:
    """The choices for one stream."""

    unknown_tool: Literal["call", "content"] = "call"
    """A call of a tool that the request does not offer: told like any other, or the text that it is."""
    malformed: Literal["content", "drop"] = "content"
    """The text of a region that breaks its format, as far as it was not told as a call: passed on, or left out up to
    the region's closing marker (without one, up to the next region). A diagnostic says so either way."""
    truncated: Literal["keep", "drop"] = "keep"
    """A call that the stream's end cuts off: told as far as it came, or left out; then every call waits until it is
    whole. A diagnostic says so either way."""
    text_after_call: Literal["content", "drop"] = "content"
    """Content behind the first call that was told."""
