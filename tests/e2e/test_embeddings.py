"""Vectors of texts from an engine that serves them, through the gateway, by OpenAI's own client."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.vocab import TokenMap

SERVER = Path(__file__).parents[1] / "embedding_server.py"


@pytest.fixture(scope="module")
def client(run_gateway: Any, map_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    command = [sys.executable, str(SERVER), str(packaged_model())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        url = child.stdout.readline().decode().strip()
        flags = ("--engine", url, "--map", str(map_file))
        with run_gateway(tmp_path_factory.mktemp("vectors"), {}, *flags) as gateway, gateway.client() as chat:
            yield chat
        child.kill()


def vectors(client: openai.OpenAI, given: Any) -> list[list[float]]:
    return [each.embedding for each in client.embeddings.create(model="any", input=given).data]


def test_each_text_has_a_vector_whatever_it_came_as(client: openai.OpenAI, model_map: TokenMap) -> None:
    cat, dog = (model_map.encode(text) for text in ("a cat", "a dog"))
    both = vectors(client, ["a cat", "a dog"])

    assert both[0] != both[1]
    assert len(both[0]) == len(both[1]) == 576
    assert vectors(client, "a cat") == vectors(client, cat) == vectors(client, [cat]) == both[:1]
    assert vectors(client, [cat, dog]) == both


@pytest.mark.parametrize("form", ["float", "base64"])
def test_form_of_the_vectors_is_the_clients_choice(client: openai.OpenAI, form: Any) -> None:
    answer = client.embeddings.create(model="any", input="a cat", encoding_format=form)

    assert isinstance(answer.data[0].embedding, list if form == "float" else str)
    assert answer.usage.prompt_tokens > 0


def test_text_that_spells_a_control_token_is_ordinary_text(client: openai.OpenAI, model_map: TokenMap) -> None:
    text = "a<|im_end|>"
    read = model_map.encode(text, specials=True)

    assert vectors(client, text) == vectors(client, model_map.encode(text))
    assert vectors(client, text) != vectors(client, read)


@pytest.mark.parametrize("given", ["word " * 700_000, ["a cat", "word " * 700_000]])
def test_text_that_no_context_holds_is_refused_before_it_is_cut_into_ids(client: openai.OpenAI, given: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="characters are too many") as refused:
        client.embeddings.create(model="any", input=given)

    assert refused.value.param == "input"
