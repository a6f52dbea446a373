"""When requests are sent: how many clients there are by now, and the times of an open loop.

Turns a rate, a ramp and a seed into times, without a clock. In an open loop requests come at random, as those of many
people do (a Poisson process), whether or not earlier ones have been answered; in a ramp the rate grows evenly to its
full height, and so does the number of clients of a closed loop.
"""

from collections.abc import Iterator
from math import sqrt
from random import Random


def clients_at(seconds: float, clients: int, ramp: float) -> int:
    """How many of the clients are at work so long after the start; one at least."""
    if seconds >= ramp:
        return clients
    return max(1, min(clients, 1 + int(clients * seconds / ramp)))


def arrivals(rate: float, ramp: float, seed: int) -> Iterator[float]:
    """The times at which requests come, for ever."""
    random = Random(f"{seed}/arrivals")  # noqa: S311 - nothing secret is drawn
    expected = 0.0
    while True:
        expected += random.expovariate(1.0)
        yield time_of(expected, rate, ramp)


def time_of(expected: float, rate: float, ramp: float) -> float:
    """When so many requests are expected to have come."""
    # In the ramp the rate is `rate * t / ramp`, and what has come its integral.
    in_ramp = rate * ramp / 2
    if expected < in_ramp:
        return sqrt(2 * expected * ramp / rate)
    return ramp + (expected - in_ramp) / rate


def rotated(count: int, turn: int) -> list[int]:
    """The order in which so many servers are asked: it begins with another one each turn, and every second is reversed.

    Without the reversing a server would always be asked behind the same one.
    """
    order = [(turn // 2 + place) % count for place in range(count)]
    return order[::-1] if turn % 2 else order
