"""One malformed item of one server never removes another item from what a client of the official Python SDK lists.

`make odd-servers` asks the same of the TypeScript SDK, which refuses a whole list for one item.
"""

import anyio
import pytest

from tests.odd_servers.gateway import gateway_of, until_up
from tests.odd_servers.malformed import MALFORMED, config, what_lacks

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_python_sdk_lists_everything_that_is_fine_beside_each_malformed_item() -> None:
    with anyio.fail_after(120):
        async with gateway_of(config()) as (proxy, session):
            await until_up(proxy, {"bad", "good"})
            listed = {
                "tools": [each.name for each in (await session.list_tools()).tools],
                "prompts": [each.name for each in (await session.list_prompts()).prompts],
                "resources": [each.name for each in (await session.list_resources()).resources],
                "resourceTemplates": [
                    each.name for each in (await session.list_resource_templates()).resource_templates
                ],
            }

    assert what_lacks(listed) == []
    assert sum(map(len, MALFORMED.values())) >= 26
