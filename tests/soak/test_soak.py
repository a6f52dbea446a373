"""A gateway under mixed operations, in short: `make soak` is the same at length."""

from functools import partial
from pathlib import Path

import pytest

from tests.e2e.faults.conftest import bytes_of
from tests.soak.load import Outcome, soak, soaked_gateway

pytestmark = [pytest.mark.anyio, pytest.mark.engine]


async def test_no_answer_is_wrong_under_operations_of_every_kind(tmp_path: Path) -> None:
    with soaked_gateway(tmp_path) as gateway:
        outcome = await soak(gateway.url, partial(bytes_of, gateway.process.pid), 3, seed=1)

    assert outcome.wrong == []
    assert set(outcome.done) == {"call", "refused", "cut", "chat", "messages", "responses"}


def test_growth_is_that_of_the_second_half_in_10_000_operations() -> None:
    outcome = Outcome()
    outcome.done["call"] = 4000
    outcome.memory = [(1000, 90_000_000), (2000, 50_000_000), (3000, 50_100_000), (4000, 50_200_000)]

    assert outcome.growth() == pytest.approx(1.0)
