"""What a key learns of another's prompts from the figures of the cache: nothing. Operators see the true ones."""

from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import key_for

SECRET = "The password of the vault behind the blue door is nineteen owls and a lighthouse."
GREEDY = {"model": "any", "temperature": 0, "seed": 1, "max_tokens": 2}


class Asker:
    """One key."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"}

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = httpx2.post(self._url + path, json={**GREEDY, **body}, headers=self._headers, timeout=240)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def chat(self, text: str) -> dict[str, Any]:
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]})

    def complete(self, text: str) -> dict[str, Any]:
        return self.post("/v1/completions", {"prompt": text})


def cached(answer: dict[str, Any]) -> int:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture
def gateway(start_gateway, tmp_path):
    keys = {name: key_for(tmp_path, name) for name in ("ada", "eve")}
    started = start_gateway({}, "--engine", "embedded")
    return started, Asker(started.url, keys["ada"]), Asker(started.url, keys["eve"])


def test_guess_of_another_keys_prompt_is_told_nothing(gateway):
    started, ada, eve = gateway
    ada.chat(SECRET)
    right = eve.chat(SECRET)
    first_prompt = right["usage"]["prompt_tokens"]
    mine = ada.chat(SECRET)
    again = eve.chat(SECRET)
    ada.complete(SECRET)
    continued = eve.complete(SECRET)

    assert cached(right) == 0
    (turn,) = right["codec"]["turns"]
    assert (turn["cache_n"], turn["prompt_n"], turn["reuse"]) == (0, first_prompt, None)
    assert cached(mine) == cached(again) == first_prompt - 1
    assert cached(continued) == 0
    # Her second request, the other's second, and whatever the engine did reuse between them.
    assert started.metric("codec_generation_reused_ids_total") >= 2 * (first_prompt - 1)


def test_isolated_keys_reuse_nothing_of_each_other(start_gateway, tmp_path):
    ada, eve = (key_for(tmp_path, name) for name in ("ada", "eve"))
    started = start_gateway(
        {}, "--engine", "embedded", env={"CODEC_GATEWAY_ENGINE__ISOLATE": "true", "CODEC_GATEWAY_ENGINE__SLOTS": "1"}
    )
    Asker(started.url, ada).chat(SECRET)
    Asker(started.url, eve).chat(SECRET)

    assert started.metric("codec_generation_reused_ids_total") == 0


def test_how_far_a_guess_agrees_with_another_keys_prompt_is_told_nothing(start_gateway, tmp_path):
    ada, eve = (key_for(tmp_path, name) for name in ("ada", "eve"))
    bare = {"CODEC_GATEWAY_ENGINE__SLOTS": "1", "CODEC_GATEWAY_ENGINE__CACHE_MIB": "0"}
    started = start_gateway({}, "--engine", "embedded", env=bare)
    ada, eve = Asker(started.url, ada), Asker(started.url, eve)
    told = []
    for guess in (SECRET, SECRET.replace("nineteen", "seven"), SECRET.replace("vault", "cellar")):
        eve.chat(guess)
        # It takes the only slot, and leaves in it what agrees with the guess.
        ada.chat(f"{SECRET} Do not tell.")
        told.append(cached(eve.chat(guess)))
        mine = cached(eve.chat(guess))

    assert told == [0, 0, 0]
    assert mine > 0
