"""How a run is driven and what bounds it: counts, times and ceilings, checked before anything is sent.

Turns what a person asked for into a `Plan`, and says what a run would send at most. Pure.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from gateway.errors import ConfigError

MOST_REQUESTS: Final = 100_000
"""Requests to one server."""
MOST_SAMPLES: Final = 100_000
"""Requests to all servers together; they determine how much memory a run takes."""
MOST_SECONDS: Final = 3600.0
MOST_CLIENTS: Final = 512
MOST_RATE: Final = 5000.0
MOST_SERVERS: Final = 12
"""Enough for JSON and two forms of frames, each in four codings."""
MOST_TURNS: Final = 100
MOST_PROMPT: Final = 131_072
MOST_ANSWER: Final = 32_768


@dataclass(frozen=True, slots=True)
class Plan:
    """How requests are sent, and when that ends."""

    requests: int = 50
    """To each server, at most."""
    seconds: float = 60.0
    """Seconds of the whole run; the warm-up, which is not part of it, may take as long."""
    clients: int = 1
    """Clients of a closed loop: each sends its next request once it has its answer."""
    rate: float | None = None
    """Conversations a second that are begun with each server, in an open loop."""
    ramp: float = 0.0
    """Seconds until all clients are at work, or the rate is reached."""
    timeout: float = 60.0
    """Seconds that one request may take."""
    warmup: int = 1
    """Conversations with each server that do not count."""
    seed: int = 0

    def conversations(self, requests_each: int) -> int:
        """How many are held with each server, if each takes `requests_each` requests."""
        return ceil(self.requests / requests_each)

    def described(self) -> dict[str, Any]:
        """The plan as the result shows it."""
        loop = {"clients": self.clients} if self.rate is None else {"rate": self.rate}
        bounds = {"requests": self.requests, "seconds": self.seconds, "timeout": self.timeout}
        return {**loop, **bounds, "ramp": self.ramp, "warmup": self.warmup}


def check_plan(plan: Plan, servers: int, turns: int, requests_a_turn: int) -> None:
    """Check that a run stays within its ceilings. Raises `ConfigError`."""
    bounds: tuple[tuple[str, float, float, float], ...] = (
        ("--requests", plan.requests, 1, MOST_REQUESTS),
        ("--seconds", plan.seconds, 0.1, MOST_SECONDS),
        ("--clients", plan.clients, 1, MOST_CLIENTS),
        ("--rate", 1.0 if plan.rate is None else plan.rate, 0.001, MOST_RATE),
        ("--ramp", plan.ramp, 0, MOST_SECONDS),
        ("--timeout", plan.timeout, 0.1, MOST_SECONDS),
        ("--warmup", plan.warmup, 0, 100),
        ("--turns", turns, 1, MOST_TURNS),
        ("URL", servers, 1, MOST_SERVERS),
    )
    for name, value, least, most in bounds:
        # Written so that a NaN is refused.
        if not least <= value <= most:
            raise ConfigError(f"{name}: {value:g} is out of bounds, expected {least:g} to {most:g}")
    each = turns * requests_a_turn
    if (count := servers * each * plan.conversations(each)) > MOST_SAMPLES:
        raise ConfigError(
            f"this run would send {count} requests, but at most {MOST_SAMPLES} are allowed: lower --requests"
        )


def what_would_be_sent(plan: Plan, answer_tokens: str) -> str:
    """A plan in words, for whoever has to allow it."""
    pace = f"{plan.clients} at a time" if plan.rate is None else f"{plan.rate:g} a second"
    return (
        f"up to {plan.requests} requests, {pace}, for answers of {answer_tokens} tokens, for up to {plan.seconds:g} s"
    )
