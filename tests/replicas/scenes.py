"""What is tried, one after the other, each on a site of its own."""

from collections.abc import Callable, Mapping
from pathlib import Path

import uvloop

from tests.replicas import chat, cuts, secrets, stickiness
from tests.replicas.found import Found, Options
from tests.replicas.load import load
from tests.replicas.site import site

_MOST_WITH_A_STORE = 20_000
"""Calls: enough for some twenty outages, and the whole ends within ten minutes."""


def under_load(folder: Path, options: Options) -> Found:
    """Many calls while replicas are killed, drained and added every few seconds, over a network that loses frames."""
    return _loaded(folder, options, options.calls, shared=False)


def under_load_with_a_store(folder: Path, options: Options) -> Found:
    """The same with a store that is killed, emptied and frozen meanwhile."""
    return _loaded(folder, options, min(options.calls, _MOST_WITH_A_STORE), shared=True)


def _loaded(folder: Path, options: Options, calls: int, *, shared: bool) -> Found:
    with site(folder, 4, running=3, shared=shared) as made:
        made.switch.set(delay=0.001, loss=0.001)
        outcome = uvloop.run(load(made, calls, options.clients, options.seed, (2.0, 5.0)))
    return Found(outcome.lines(), outcome.told(), outcome.faults)


SCENES: Mapping[str, Callable[[Path, Options], Found]] = {
    "load": under_load,
    "outages": under_load_with_a_store,
    "cuts": cuts.scene,
    "secrets": secrets.scene,
    "stickiness": stickiness.scene,
    "chat": chat.scene,
}
