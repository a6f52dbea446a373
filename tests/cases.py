"""One test over many small cases of data: it takes each, and names all that fail with the reason of each.

As parameters of pytest they would cost more to collect, in every worker, than to try.
"""

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Final

IN_FULL: Final = "CODEC_FUZZ" in os.environ
"""Whether tests marked `in_full` take all of their cases, as in `make fuzz`, and not the suite's part of them."""
SHOWN = 10
"""How many failed cases are shown with their tracebacks."""


def each_of(
    names: str | tuple[str, ...], cases: Sequence[object]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test once for each case: the value of one parameter, or a tuple of values of several."""

    def over(test: Callable[..., None]) -> Callable[..., None]:
        keys = (names,) if isinstance(names, str) else names
        signature = inspect.signature(test)

        @functools.wraps(test)
        def all_cases(**fixtures: object) -> None:
            failed: list[Exception] = []
            for case in cases:
                values = (case,) if isinstance(names, str) else case
                try:
                    test(**fixtures, **dict(zip(keys, values, strict=True)))  # type: ignore[arg-type]
                except Exception as error:
                    error.add_note(f"with {', '.join(keys)} = {case!r}")
                    failed.append(error)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(cases)} cases fail", failed[:SHOWN])

        # What pytest sees: the fixtures alone.
        del all_cases.__wrapped__
        rest = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        all_cases.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return all_cases

    return over
