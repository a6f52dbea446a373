"""Where a model's answer ends: at its end-of-turn id, or before a stop string.

The last id of a generation may be the end of turn, which does not belong to it: a special id is held back until another
id follows or the engine says what ended the generation. The engine is never given stop strings, since it withholds ids
for them; they are found in the content, and text that may be the beginning of one is held until that is decided. Pure.
"""

from collections.abc import Container, Sequence


class EndHold:
    """Holds back the id that may be the end of turn."""

    def __init__(self, specials: Container[int]) -> None:
        """`specials`: the ids that could end a turn."""
        self._specials = specials
        self._held: Sequence[int] = ()

    def feed(self, ids: Sequence[int]) -> Sequence[int]:
        """Take at least one id; return those that are certainly not the end of turn."""
        if not self._held and ids[-1] not in self._specials:
            return ids
        ids = [*self._held, *ids]
        self._held = ids[-1:] if ids[-1] in self._specials else ()
        return ids[: len(ids) - len(self._held)]

    def close(self, ended_by: int | None) -> Sequence[int]:
        """Return what is held, without the id that ended the turn, if one did."""
        held, self._held = self._held, ()
        return held if ended_by is None else held[:-1]

    def drop(self) -> int:
        """Forget what is held; return how many ids that was."""
        dropped, self._held = len(self._held), ()
        return dropped


class StopFilter:
    """Passes text through up to the first stop string, which is left out (OpenAI's `stop`)."""

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
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                return size
        return 0
