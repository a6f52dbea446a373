"""Under which names the APIs and the admin port of a running gateway answer: one rule for all."""

import httpx2
import pytest

PAGES = ("/v1/models", "/mcp", "/healthz/live")


@pytest.fixture
def ask(start_gateway, tells_time):
    gateway = start_gateway({"time": tells_time})

    def ask(path: str, host: str) -> int:
        base = gateway.admin if path.startswith("/healthz") else gateway.url
        return httpx2.get(base + path, headers={"host": host}).status_code

    return ask


def test_every_spelling_of_loopback_is_let_in_and_every_other_name_refused_everywhere(ask):
    ours = {page: [ask(page, host) for host in ("LOCALHOST:1", "127.0.0.2", "localhost", "[::1]")] for page in PAGES}
    foreign = {page: ask(page, "evil.example") for page in PAGES}

    assert all(421 not in answers and len(set(answers)) == 1 for answers in ours.values()), ours
    assert foreign == dict.fromkeys(PAGES, 421)
