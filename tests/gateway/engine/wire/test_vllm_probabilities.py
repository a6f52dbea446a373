"""The probabilities in vLLM's answers, as either endpoint writes them."""

from typing import Any

import pytest

from gateway.engine.wire.vllm_json import logprobs_of, tops_of


def by_id(*entries: tuple[int, object]) -> dict[str, Any]:
    """As `/inference/v1/generate` writes them."""
    content = [
        {"token_id": token, "logprob": said, "top_logprobs": [{"token_id": token, "logprob": said}]}
        for token, said in entries
    ]
    return {"logprobs": {"content": content}}


def by_name(*entries: dict[str, float]) -> dict[str, Any]:
    """As `/v1/completions` writes them."""
    return {"logprobs": {"token_logprobs": [*map(max, (e.values() for e in entries))], "top_logprobs": [*entries]}}


def test_probabilities_stand_at_their_ids_and_nowhere_else() -> None:
    assert logprobs_of(by_id((1, -0.5), (2, -1.0)), [1, 2]) == [-0.5, -1.0]
    assert logprobs_of(by_id((1, -0.5), (9, -1.0)), [1, 2]) == [-0.5, None]
    assert logprobs_of(by_id((1, -0.5)), [1, 2, 3]) == [-0.5, None, None]
    assert logprobs_of(by_name({"token_id:1": -0.5}, {"token_id:2": -1.0}), [1]) == [-0.5]
    assert logprobs_of({}, [1, 2]) == [None, None]


@pytest.mark.parametrize(
    ("name", "token_id"),
    [
        ("token_id:7", 7),
        ("7", 7),
        ("token_id:" + "9" * 10, 9999999999),
        ("token_id:" + "9" * 11, None),
        ("token_id:-7", None),
        ("token_id:\u0667", None),
        ("word", None),
    ],
)
def test_alternatives_are_named_by_their_ids(name: str, token_id: int | None) -> None:
    assert tops_of(by_name({name: -0.5}), [1]) == [[(token_id, -0.5)]]


def test_each_id_has_its_alternatives_or_none() -> None:
    assert tops_of(by_id((1, -0.5), (2, -1.0)), [1, 2, 3]) == [[(1, -0.5)], [(2, -1.0)], []]
    assert tops_of(by_name({"token_id:1": -0.5}, {"token_id:2": -1.0}), [1]) == [[(1, -0.5)]]
    assert tops_of({}, [1]) == [[]]
