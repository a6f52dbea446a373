"""Python's cyclic garbage collector, paused while a vocabulary is built.

A vocabulary is hundreds of thousands of small objects without a cycle among them. The collector would walk all of them
again and again while they are made, which takes a third of the time.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def collector_held() -> Generator[None]:
    """Pause the collector for the block; if it was off, it stays off."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
