"""When requests are sent: the number of clients at a given time, and the times of an open loop.

Turns a rate, a ramp and a seed into times, without a clock. In an open loop requests come at random, as those of many
people do (a Poisson process), whether or not earlier ones have been answered. During a ramp the rate grows evenly to
its full value, and so does the number of clients of a closed loop.
"""

from collections.abc import Iterator
from math import sqrt
from random import Random


def clients_at(seconds: float, clients: int, ramp: float) -> int:
    """How many of the clients are at work `seconds` after the start; at least one."""
    if seconds >= ramp:
        return clients
    return max(1, min(clients, 1 + int(clients * seconds / ramp)))


def arrivals(rate: float, ramp: float, seed: int) -> Iterator[float]:
    """The times at which requests are sent, without end."""
    random = Random(f"{seed}/arrivals")  # noqa: S311 - nothing secret is drawn
    expected = 0.0
    while True:
        expected += random.expovariate(1.0)
        yield time_of(expected, rate, ramp)


def time_of(expected: float, rate: float, ramp: float) -> float:
    """The time by which `expected` requests are expected to have been sent."""
    # During the ramp the rate is `rate * t / ramp`, and the number of requests is its integral.
    in_ramp = rate * ramp / 2
    if expected < in_ramp:
        return sqrt(2 * expected * ramp / rate)
    return ramp + (expected - in_ramp) / rate


def rotated(count: int, turn: int) -> list[int]:
    """The order in which `count` servers are asked in a turn: it is rotated from turn to turn, and every second time
    reversed. If it were not reversed, a server would always be asked after the same other one."""
    order = [(turn // 2 + place) % count for place in range(count)]
    return order[::-1] if turn % 2 else order
