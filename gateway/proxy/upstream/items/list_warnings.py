"""Warnings about what one server lists, each logged once, however often the server lists it.

Turns subjects (a tool, one definition of it, a field of an item) into log lines for those that are new: some by name
for each listing, the rest as a number, since a server could list thousands of new ones every second. It does not know
what is wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from gateway.observe.logs import get_logger

Subject = TypeVar("Subject")
_LINES: Final = 20
"""Subjects that are logged by name for one listing."""
_REMEMBERED: Final = 10_000
"""Subjects remembered as logged, at most."""


class ListWarnings(Generic[Subject]):
    """What was logged about one server's lists."""

    def __init__(self, server: str, event: str, event_for_rest: str) -> None:
        """`event`: the log event for each subject. `event_for_rest`: the one for those that are only counted."""
        self._log = get_logger("gateway.proxy").bind(server=server)
        self._event = event
        self._event_for_rest = event_for_rest
        self._logged: set[Subject] = set()

    def warn(self, subjects: Sequence[Subject], fields: Callable[[Subject], Mapping[str, object]]) -> int:
        """Log those that were not logged before, with their `fields`. Return how many these are."""
        new = [each for each in subjects if each not in self._logged]
        if len(self._logged) + len(new) > _REMEMBERED:
            self._logged.clear()
        self._logged.update(new)
        for each in new[:_LINES]:
            self._log.warning(self._event, **fields(each))
        if len(new) > _LINES:
            self._log.warning(self._event_for_rest, count=len(new) - _LINES)
        return len(new)
