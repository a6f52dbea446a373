"""One test over many small cases of data: it takes each, and names all that fail with the reason of each.

As parameters of pytest they would cost more to collect, in every worker, than to try.
"""

import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

IN_FULL: Final = "CODEC_FUZZ" in os.environ
"""Whether tests marked `in_full` take all of their cases, as in `make fuzz`, and not the suite's part of them."""
SHOWN = 10
"""How many failed cases are shown with their tracebacks."""
LONG = 500
"""How many characters of a failed case are shown."""
_PARAM: Final = type(pytest.param())


def each_of(
    names: str | tuple[str, ...], cases: Collection[object]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call a test once for each case: the value of one parameter, or a tuple of values of several.

    All cases share the test's fixtures.
    """
    keys = (names,) if isinstance(names, str) else names
    if any(isinstance(case, _PARAM) for case in cases):
        raise TypeError("a case is a value, or a tuple of values: pytest.param is for parametrize")

    def values(case: Any) -> dict[str, object]:
        return dict(zip(keys, (case,) if isinstance(names, str) else case, strict=True))

    def over(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def all_cases(**fixtures: object) -> None:
            failures = _Failures(", ".join(keys), len(cases))
            for case in cases:
                with failures.noted(case):
                    test(**fixtures, **values(case))
            failures.report()

        @functools.wraps(test)
        async def all_async_cases(**fixtures: object) -> None:
            failures = _Failures(", ".join(keys), len(cases))
            for case in cases:
                with failures.noted(case):
                    await test(**fixtures, **values(case))
            failures.report()

        whole = all_async_cases if inspect.iscoroutinefunction(test) else all_cases
        # What pytest sees: the fixtures alone.
        del whole.__wrapped__
        signature = inspect.signature(test)
        rest = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        whole.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return whole

    return over


class _Failures:
    """Of one test: what its cases raised."""

    def __init__(self, names: str, count: int) -> None:
        self._names = names
        self._count = count
        self._failed: list[Exception] = []

    @contextmanager
    def noted(self, case: object) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            error.add_note(f"with {self._names} = {case!r:.{LONG}}")
            self._failed.append(error)

    def report(self) -> None:
        if self._failed:
            raise ExceptionGroup(f"{len(self._failed)} of {self._count} cases fail", self._failed[:SHOWN])
