"""Python's cyclic garbage collector, held while a vocabulary is built.

A vocabulary is hundreds of thousands of small objects without a cycle among them. The collector walks all of them again
and again while they are made, which is a third of the time.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def collector_held() -> Generator[None]:
    """Hold the collector for the block; one that was off stays off."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
