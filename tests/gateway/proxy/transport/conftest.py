"""What a conversation logs."""

import pytest

from tests.gateway.proxy.transport.kept_log import KeptLog


@pytest.fixture
def log() -> KeptLog:
    return KeptLog()
