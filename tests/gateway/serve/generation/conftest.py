from collections.abc import AsyncGenerator

import pytest

from tests.gateway.serve.generation.three_apis import Apis, running


@pytest.fixture
async def apis() -> AsyncGenerator[Apis]:
    """The three APIs, without tools of the gateway's own."""
    async with running() as found:
        yield found
