"""A server's log line that quotes a message is no message."""

import sys
from pathlib import Path

import pytest

from gateway.config.gateway_config import UpstreamConfig

pytestmark = pytest.mark.anyio
SCRIPT = Path(__file__).parent / "servers" / "quotes.py"


async def test_greeting_before_the_first_answer_is_skipped_and_a_later_quotation_answers_nothing(
    proxy_of, client, call
):
    upstream = UpstreamConfig(name="up", command=sys.executable, args=(str(SCRIPT),), protocol="handshake")
    async with proxy_of(upstream) as proxy:
        assert await call(proxy, client(), "up__fetch") == "real"
