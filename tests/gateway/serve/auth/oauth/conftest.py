"""One authorization server for all tests of a module, new to each of them."""

from collections.abc import AsyncGenerator

import pytest

from .issuer import Issuer, running_issuer


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def _running() -> AsyncGenerator[Issuer]:
    async with running_issuer() as issuer:
        yield issuer


@pytest.fixture
def issuer(_running: Issuer) -> Issuer:
    _running.reset()
    return _running
