"""The window on the stream that the nodes share: the text that has arrived, and the reading position.

Turns chunks into one text that is read only forwards: text that was read leaves the buffer at the next `feed`. While a
region is open, the text of its current call is kept, so that it can become content again. Knows nothing of what the
nodes look for.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Literal

from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import SHOWN_NAME, CallEvents
from gateway.toolcalls.stream.spelling import Spelling

WHITESPACE = " \t\r\n"
"""JSON's whitespace (RFC 8259, section 2), which may also stand between markers."""

MAX_STRAY = 250
"""Most markers in a row that bring no call: a model that repeats one without end writes text, and each costs as much as
100 characters of text. An answer that explains the markers has tens."""

TextChannel = Literal["content", "reasoning"]


class Sight(Enum):
    """Whether the unread text begins with a given text, or is still too short to tell."""

    YES = "yes"
    NO = "no"
    UNSURE = "unsure"


class Cursor:
    """The stream as the nodes see it: `buffer[position:]` is unread, and once `ended` no more will come.

    `whole`: the model ended it itself; otherwise the end cuts off what is open.

    `tools` are for families that write arguments without types: the schemas give the types then. `scanned` counts the
    characters that nodes examined, repeatedly if they are examined again: it shows that the cost per character stays
    constant. `idle`: only a marker that is one special token can change anything. `channel` is where the text of a
    broken region goes; `strays` are closing markers whose passage has already ended; `stops` are the open region's
    markers, as they stand in the stream; `lookalikes`: how many places may still be taken for calls without the
    format's markers; `in_other_json`: an object that is no call has begun, so that closing braces may be its own.
    `strays_left`: how many markers may still bring no call.
    """

    def __init__(
        self,
        calls: CallEvents,
        spelling: Spelling,
        *,
        tools: Mapping[str, ToolSpec],
        prompt_tail: str,
        forget: Callable[[int], None],
        lookalikes: int = 0,
    ) -> None:
        self.calls = calls
        self.spelling = spelling
        self.tools = tools
        self.prompt_tail = prompt_tail
        self.buffer = ""
        self.position = 0
        self.ended = False
        self.whole = False
        self.idle = False
        self.channel: TextChannel = "content"
        self.strays: tuple[str, ...] = ()
        self.stops: tuple[str, ...] = ()
        self.lookalikes = lookalikes
        self.in_other_json = False
        self.strays_left = MAX_STRAY
        self.scanned = 0
        self._forget = forget
        self._base = 0
        self._region_start: int | None = None
        self._kept: list[str] | None = None
        self._kept_from = 0
        self._told = False

    @property
    def cut(self) -> bool:
        """Whether the stream has ended, and not because the model ended it."""
        return self.ended and not self.whole

    @property
    def offset(self) -> int:
        """The reading position, in characters from the start of the stream."""
        return self._base + self.position

    @property
    def unread(self) -> int:
        """How many characters have arrived and are not read yet."""
        return len(self.buffer) - self.position

    @property
    def region_length(self) -> int:
        """How many characters the open region has so far; 0 outside a region."""
        return 0 if self._region_start is None else self._base + len(self.buffer) - self._region_start

    @property
    def region_told(self) -> bool:
        """Whether the current call of the open region was reported."""
        return self._told

    def feed(self, text: str) -> None:
        """Add text; text that was read is dropped, or kept where it may become content again."""
        if self._kept is not None:
            self._keep_read(self._kept)
        self._base += self.position
        self.buffer = self.buffer[self.position :] + text
        self.position = self._kept_from = 0
        if self._region_start is None:
            self._forget(self._base)

    def take(self, end: int) -> str:
        """Read to `end` (a place in the buffer) and return the text, with markers spelled out."""
        text = self.buffer[self.position : end]
        self.position = end
        # Nearly all text is ASCII, which has no stand-ins.
        return text if text.isascii() else self.spelling.plain(text)

    def skip_whitespace(self) -> bool:
        """Read whitespace; return whether it is over, because something else follows or the stream has ended."""
        start = self.position
        while self.position < len(self.buffer) and self.buffer[self.position] in WHITESPACE:
            self.position += 1
        self.scanned += self.position - start
        return self.unread > 0 or self.ended

    def foresee(self, text: str) -> Sight:
        """Return whether the unread text begins with `text` (as it appears in the stream)."""
        self.scanned += min(len(text), self.unread)
        if self.buffer.startswith(text, self.position):
            return Sight.YES
        if self.ended or self.unread >= len(text) or not text.startswith(self.buffer[self.position :]):
            return Sight.NO
        return Sight.UNSURE

    def open_region(self, lead: str, markers: tuple[str, ...] = ()) -> None:
        """Open a region here; `lead` is text read before it, which becomes content if the region breaks."""
        self._forget(self.offset)
        self._region_start = self.offset
        self.stops = tuple(map(self.spelling.spell, markers))
        self._keep_from_here(lead)

    def begin_call(self) -> None:
        """Begin a call of the open region here."""
        self._pass_on_refused()
        self.calls.begin(self.offset)
        if self._told:
            self._told = False
            self._keep_from_here("")

    def heeds_marker(self) -> bool:
        """Whether the marker that stands here counts: behind too many that brought no call, none does."""
        self.strays_left -= 1
        if self.strays_left == -1:
            message = f"{MAX_STRAY} markers in a row bring no call; what follows is passed on as content"
            self.calls.abandon("malformed", message)
        return self.strays_left >= 0

    def start_call(self) -> None:
        """Report the call, unless the policy refuses it."""
        if self.calls.policy.unknown_tool == "content" and self.calls.name not in self.tools:
            self.calls.refuse()
            return
        self._told = True
        self.calls.start()

    def close_region(self) -> bool:
        """End the region here, whole. Returns whether it was markup: a refused call makes it content."""
        if self._told:
            self.strays_left = MAX_STRAY
        refused = self._pass_on_refused()
        self.calls.finish(self.offset)
        self._leave_region()
        return not refused

    def withdraw_region(self) -> None:
        """Give up what looked like a region, before it reported a call: its text is content."""
        self.calls.withdraw()
        self._give_back()
        self._leave_region()

    def break_region(self, reason: str | None = None) -> None:
        """End the region here, broken: the end of the stream cut it off, or it is malformed from here on.

        A call that the end cuts off stays as far as it was reported, unclosed. The text of any other becomes content,
        from its first character, unless the policy is to drop it: what was reported of it can't be taken back, but
        nothing is lost. Reasoning may mention calls: there, this is not an error.
        """
        if self.channel == "reasoning" and not (self.ended or self.region_told):
            self.withdraw_region()
            return
        dropped = (self.calls.policy.truncated if self.cut else self.calls.policy.malformed) == "drop"
        if self.cut:
            if self.calls.has_name and self.calls.has_arguments and not self.calls.started:
                # It was held for an id that will not come.
                self.start_call()
            self.calls.abandon("truncated", f"the stream ended inside a tool call, at character {self.offset}")
        else:
            outcome = "dropped" if dropped else "passed on as content"
            self.calls.abandon("malformed", f"{reason or self._wrong}; what can't be read is {outcome}")
        if not (dropped or (self.cut and self._told)):
            self._give_back()
        elif self.cut:
            # The rest is the beginning of a marker or of a key: markup of a call that was reported.
            self.position = len(self.buffer)
        self._leave_region()

    def spoil_call(self, rest: str, reason: str | None = None) -> None:
        """Keep a reported call that can't be read from here on; `rest` completes its arguments to JSON."""
        self.calls.spoil(rest, reason or self._wrong)

    @property
    def _wrong(self) -> str:
        return f"a tool call breaks its format at character {self.offset}"

    def fail(self, error: Exception) -> None:
        """Handle a failure of the nodes themselves. An unreported call's text becomes content, unless it is dropped."""
        wrong = f"the parser of tool calls failed at character {self.offset} ({type(error).__name__})"
        self.calls.abandon("failed", f"{wrong}; what follows is passed on as content", error)
        if self._kept is not None and not self._told and self.calls.policy.malformed == "content":
            self._give_back()
        self._leave_region()

    def _pass_on_refused(self) -> bool:
        """If the call that ends here was refused, turn its text into content; return whether it was."""
        if not self.calls.refused:
            return False
        name = self.calls.name[:SHOWN_NAME]
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
        self._told = False
        self._region_start = None

    def _keep_from_here(self, lead: str) -> None:
        self._kept = [lead]
        self._kept_from = self.position

    def _keep_read(self, kept: list[str]) -> None:
        kept.append(self.buffer[self._kept_from : self.position])
        self._kept_from = self.position
