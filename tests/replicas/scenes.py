"""What is tried, one after the other, each on a site of its own."""

from collections.abc import Callable, Mapping
from pathlib import Path

import uvloop

from tests.replicas import chat, cuts, secrets, stickiness
from tests.replicas.found import Found, Options
from tests.replicas.load import load
from tests.replicas.site import site


def under_load(folder: Path, options: Options) -> Found:
    """Many calls while replicas are killed, drained and added every few seconds, over a network that loses frames."""
    with site(folder, 4, running=3, shared=options.shared) as made:
        made.switch.set(delay=0.001, loss=0.001)
        outcome = uvloop.run(load(made, options.calls, options.clients, options.seed, (2.0, 5.0)))
    return Found(outcome.lines(), outcome.told(), outcome.faults)


SCENES: Mapping[str, Callable[[Path, Options], Found]] = {
    "load": under_load,
    "cuts": cuts.scene,
    "secrets": secrets.scene,
    "stickiness": stickiness.scene,
    "chat": chat.scene,
}
