"""The window on the stream that the nodes share: the text that has come, and where reading stands.

Turns chunks into one text that is never looked back on: what is read leaves the buffer with the next `feed`. While a
region is open and its call not told yet, what was read of it is kept aside, so that it can become content again. Knows
nothing of what the nodes look for.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Literal

from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.calls import CallEvents
from gateway.toolcalls.stream.spelling import Spelling

WHITESPACE = " \t\r\n"
"""JSON's whitespace (RFC 8259, section 2), and what may stand between markers."""

Channel = Literal["content", "reasoning"]

_SHOWN_NAME = 80
"""Characters of a name that a diagnostic shows."""


class Sight(Enum):
    """Whether the unread text begins with what was asked for, or is too short to tell."""

    YES = "yes"
    NO = "no"
    UNSURE = "unsure"


class Cursor:
    """The stream as the nodes see it: `buffer[position:]` is unread, and once `ended` no more will come.

    `tools` are there for families that write arguments without types, which are then the schema's to give.
    `scanned` counts the characters that nodes looked at, a second look included: it shows that the cost stays flat.
    `idle` says that only a marker that is one special token can change anything. `channel` is where a region's text
    goes back to if it breaks, `strays` are closing markers whose passage is over already.
    """

    def __init__(
        self,
        calls: CallEvents,
        spelling: Spelling,
        *,
        tools: Mapping[str, ToolSpec],
        prompt_tail: str,
        forget: Callable[[int], None],
    ) -> None:
        self.calls = calls
        self.spelling = spelling
        self.tools = tools
        self.prompt_tail = prompt_tail
        self.buffer = ""
        self.position = 0
        self.ended = False
        self.idle = False
        self.channel: Channel = "content"
        self.strays: tuple[str, ...] = ()
        self.scanned = 0
        self._forget = forget
        self._base = 0
        self._region_start: int | None = None
        self._kept: list[str] | None = None
        self._kept_from = 0

    @property
    def offset(self) -> int:
        """Where reading stands, in characters from the start of the stream."""
        return self._base + self.position

    @property
    def unread(self) -> int:
        """How many characters have come and are not read."""
        return len(self.buffer) - self.position

    @property
    def region_length(self) -> int:
        """How many characters the open region has so far, 0 outside of one."""
        return 0 if self._region_start is None else self._base + len(self.buffer) - self._region_start

    @property
    def region_told(self) -> bool:
        """Whether the open region has told a call: from then on its text can't become content again."""
        return self._region_start is not None and self._kept is None

    def feed(self, text: str) -> None:
        """Add what has come; what was read is dropped, or kept aside where it may become content."""
        if self._kept is not None:
            self._keep_read(self._kept)
        self._base += self.position
        self.buffer = self.buffer[self.position :] + text
        self.position = self._kept_from = 0
        if self._region_start is None:
            self._forget(self._base)

    def take(self, end: int) -> str:
        """Read to `end` (a place in the buffer) and give what was read, markers spelled out."""
        text = self.buffer[self.position : end]
        self.position = end
        # Nearly all text is ASCII, in which no marker stands as its stand-in.
        return text if text.isascii() else self.spelling.plain(text)

    def skip_whitespace(self) -> bool:
        """Read whitespace; say whether it is over, because something else has come or nothing will."""
        start = self.position
        while self.position < len(self.buffer) and self.buffer[self.position] in WHITESPACE:
            self.position += 1
        self.scanned += self.position - start
        return self.unread > 0 or self.ended

    def foresee(self, text: str) -> Sight:
        """Say whether the unread text begins with `text` (as it stands in the stream)."""
        self.scanned += min(len(text), self.unread)
        if self.buffer.startswith(text, self.position):
            return Sight.YES
        if self.ended or self.unread >= len(text) or not text.startswith(self.buffer[self.position :]):
            return Sight.NO
        return Sight.UNSURE

    def open_region(self, lead: str) -> None:
        """A region begins here; `lead` is what was read before it and is content again if it breaks."""
        self._forget(self.offset)
        self._region_start = self.offset
        self._keep_from_here(lead)

    def begin_call(self) -> None:
        """A call of the open region begins here."""
        self._pass_on_refused()
        self.calls.begin(self.offset)
        if self._kept is None:
            self._keep_from_here("")

    def start_call(self) -> None:
        """The call can be told; its text will not be content any more, unless the policy wants no such call."""
        if self.calls.policy.unknown_tool == "content" and self.calls.name not in self.tools:
            self.calls.refuse()
            return
        self._kept = None
        self.calls.start()

    def close_region(self) -> bool:
        """The region ends here, whole. Returns whether it was markup: a call that was refused makes it content."""
        refused = self._pass_on_refused()
        self.calls.finish(self.offset)
        self._leave_region()
        return not refused

    def withdraw_region(self) -> None:
        """What looked like a region is none and never told a call: its text is content."""
        self.calls.withdraw()
        self._give_back()
        self._leave_region()

    def break_region(self, reason: str | None = None) -> None:
        """The region can't be read on: it was cut off by the end of the stream, or is malformed from here on.

        A call that was told stays as it is, unclosed. One that was not gives its text back as content, unless the
        policy is to drop it. Reasoning may well speak of calls: there, nothing was wrong.
        """
        if self.channel == "reasoning" and not (self.ended or self.region_told):
            self.withdraw_region()
            return
        dropped = (self.calls.policy.truncated if self.ended else self.calls.policy.malformed) == "drop"
        if self.ended:
            if self.calls.has_name and self.calls.has_arguments and not self.calls.started:
                # It waited for an id that will not come.
                self.start_call()
            self.calls.abandon("truncated", f"the stream ended inside a tool call, at character {self.offset}")
        else:
            wrong = f"a tool call breaks its format at character {self.offset}"
            outcome = "dropped" if dropped else "passed on as content"
            self.calls.abandon("malformed", f"{reason or wrong}; what can't be read is {outcome}")
        if self._kept is not None and not dropped:
            self._give_back()
        elif self.ended:
            # What is left is the beginning of a marker, or of a key: markup of a call that was told.
            self.position = len(self.buffer)
        self._leave_region()

    def fail(self, error: Exception) -> None:
        """The nodes themselves failed. What was read of an untold call is content again, unless such is dropped."""
        wrong = f"the parser of tool calls failed at character {self.offset} ({type(error).__name__})"
        self.calls.abandon("failed", f"{wrong}; what follows is passed on as content", error)
        if self._kept is not None and self.calls.policy.malformed == "content":
            self._give_back()
        self._leave_region()

    def _pass_on_refused(self) -> bool:
        """Give back the text of the call that ends here if it was refused, and say so."""
        if not self.calls.refused:
            return False
        name = self.calls.name[:_SHOWN_NAME]
        self.calls.abandon("malformed", f"this request offers no tool {name!r}; its call is passed on as content")
        self._give_back()
        self._keep_from_here("")
        return True

    def _give_back(self) -> None:
        kept = self._kept or []
        self._keep_read(kept)
        tell = self.calls.content if self.channel == "content" else self.calls.reasoning
        tell(self.spelling.plain("".join(kept)))

    def _leave_region(self) -> None:
        self._kept = None
        self._region_start = None

    def _keep_from_here(self, lead: str) -> None:
        self._kept = [lead]
        self._kept_from = self.position

    def _keep_read(self, kept: list[str]) -> None:
        kept.append(self.buffer[self._kept_from : self.position])
        self._kept_from = self.position
