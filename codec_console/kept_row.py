"""A row of a page with its HTML, made once: an open page is asked for again and again, and few of its rows change.

Whoever keeps such rows finds them by everything that they were made of. It knows no template.
"""

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from markupsafe import Markup

T = TypeVar("T")


class KeptRow(Generic[T]):
    """A row, and its HTML once it has been shown."""

    def __init__(self, row: T) -> None:
        self.row = row
        self._html: Markup | None = None

    def html(self, make: "Callable[[T], Markup]") -> "Markup":
        """The HTML of the row. `make`: renders a row, once."""
        if self._html is None:
            self._html = make(self.row)
        return self._html
