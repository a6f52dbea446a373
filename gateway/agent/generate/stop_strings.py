"""Stop strings, found in the text of an answer while it arrives (OpenAI's `stop`, docs/adr/0003).

The engine is never given them, since it withholds ids for them. Text that may be the beginning of one is held until
that is decided. Pure.
"""

from collections.abc import Sequence


class StopFilter:
    """Passes text through up to the first stop string, which is left out."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held: str = ""
        self.hit = False
        """Whether a stop string has been found; nothing passes any more then."""
        self.found: str | None = None
        """The stop string that was found."""

    def feed(self, text: str) -> str:
        """Take text; return what may be shown now."""
        if self.hit:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.hit = True
            self._held = ""
            # The stop string that is complete first counts, so that it does not matter how the text was split.
            _, at, self.found = min(found)
            return text[:at]
        keep = self._undecided(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def close(self) -> str:
        """End the text; return what was held."""
        held = self._held
        self._held = ""
        return held

    def _undecided(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        longest = max(len(stop) for stop in self._stops) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                return size
        return 0
