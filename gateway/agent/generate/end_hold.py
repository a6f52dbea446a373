"""Which ids of a generation certainly belong to it: the last one may be the end of turn, which does not.

Turns ids as they arrive into ids that may be shown and remembered. It holds back a special id until another id follows
or the engine says what ended the generation. It knows no text and no calls.
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
