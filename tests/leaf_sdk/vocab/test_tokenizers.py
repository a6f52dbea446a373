"""Ids of maps built from real models' tokenizers equal those of the libraries they come with, and of llama.cpp.

Needs what `make tokenizers` fetches; run by `make test-tokenizers`. Each family gets 3,000 texts: code, prose in more
than twenty scripts, blanks, emoji, control characters, long words, random Unicode. `test_exact.py` is the short form.
"""

import base64
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tiktoken
from tokenizers import Tokenizer

from leaf_sdk.testing.gguf import gguf_model
from leaf_sdk.testing.samples import samples
from leaf_sdk.vocab import TokenMap, build_map, load_map
from leaf_sdk.vocab.agreement import compare_texts
from leaf_sdk.vocab.gguf_names import GGUF_NAMES
from leaf_sdk.vocab.sentencepiece_model import read_pieces
from leaf_sdk.vocab.tiktoken_file import CUTS
from tests.cases import each_of
from tests.families.family import vocabulary_pairs

pytestmark = [pytest.mark.tokenizers, pytest.mark.timeout(600)]

FOLDER = Path(__file__).parents[3] / ".tools" / "tokenizers"
TEXTS = list(samples(3000))
HUGGING_FACE = (
    *("claude", "deepseek_v3", "gemini", "gemma2", "gemma3", "gpt4o", "gptoss", "llama2", "llama3_1"),
    *("mistral_nemo", "qwen2_5", "qwen3"),
)
SENTENCEPIECE = (
    *("tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"),
    "mistral_instruct_tokenizer_241114.model.v7",
)
OTHER_VOCABULARIES = {
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), "llama3_1"),
    **dict.fromkeys(("gpt-4o", "llama4"), "gptoss"),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), "deepseek_v3"),
    "tekken": "mistral_nemo",
}
# What Unicode has had since its versions 15 and 16: letters and symbols to `tokenizers`, not yet to llama.cpp.
NEW = (
    *((0x897, 0x898), (0xCF3, 0xCF4), (0xECE, 0xECF), (0x1B4E, 0x1B80), (0x1C89, 0x1C8B), (0x2427, 0x242A)),
    *((0x2FFC, 0x3000), (0x31E4, 0x31F0), (0xA7CB, 0xA7DD), (0x105C0, 0x10600), (0x10D40, 0x10D90)),
    *((0x10EC2, 0x10F00), (0x1123F, 0x11242), (0x11380, 0x11400), (0x116D0, 0x116F0), (0x11B00, 0x11C00)),
    *((0x11F00, 0x11F60), (0x1342F, 0x14400), (0x16100, 0x16140), (0x16D40, 0x16D80), (0x18CFF, 0x18D00)),
    *((0x1B132, 0x1B160), (0x1CC00, 0x1D000), (0x1D2C0, 0x1D2E0), (0x1DF25, 0x1DF30), (0x1E030, 0x1E090)),
    *((0x1E4D0, 0x1E600), (0x1F6DC, 0x1F6DD), (0x1F774, 0x1F780), (0x1F7D9, 0x1F7DA), (0x1F8B2, 0x1F8D0)),
    *((0x1FA75, 0x1FB00), (0x1FBCB, 0x1FBF0), (0x2B739, 0x2B740), (0x2EBF0, 0x2EE60), (0x31350, 0x323B0)),
)


def is_older(text: str) -> bool:
    """Whether llama.cpp's tables know every character of a text."""
    return not any(first <= ord(character) < end for character in text for first, end in NEW)


def agree(token_map: TokenMap, reference: Callable[[str], list[int]], texts: list[str] = TEXTS) -> None:
    found = compare_texts(token_map, reference, texts)
    assert found.differences == []
    assert found.compared > 0.95 * len(texts)


def no_marker_is_spelled(token_map: TokenMap) -> None:
    """Every special token of the map, alone and amid text: none comes out."""
    for marker in token_map.special_texts:
        for text in (marker, f"a{marker}b", f" {marker}\n{marker}"):
            assert not token_map.special_ids & set(token_map.encode(text)), marker


@each_of("name", HUGGING_FACE)
def test_a_tokenizer_json_gives_the_ids_of_tokenizers(name):
    path = FOLDER / f"{name}.json"
    token_map = load_map(build_map(path.read_bytes()))
    reference = Tokenizer.from_file(str(path))
    agree(token_map, lambda text: reference.encode(text, add_special_tokens=False).ids)
    no_marker_is_spelled(token_map)


@pytest.mark.parametrize("name", SENTENCEPIECE)
def test_a_sentencepiece_model_gives_the_ids_of_sentencepiece(name):
    model = (FOLDER / name).read_bytes()
    token_map = load_map(build_map(model))
    agree(token_map, sentencepiece.SentencePieceProcessor(model_proto=model).encode)
    no_marker_is_spelled(token_map)


@pytest.fixture
def mistral_common() -> Iterator[Any]:
    """The library, from where it was fetched to: behind everything that is installed."""
    sys.path.append(str(FOLDER / "python"))
    try:
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        yield Tekkenizer
    finally:
        sys.path.remove(str(FOLDER / "python"))


@pytest.mark.parametrize("name", ["tekken_240718.json", "tekken_240911.json"])
def test_a_tekken_file_gives_the_ids_of_mistral_common(mistral_common, name):
    token_map = load_map(build_map((FOLDER / name).read_bytes()))
    reference = mistral_common.from_file(FOLDER / name)
    agree(token_map, lambda text: reference.encode(text, bos=False, eos=False))
    no_marker_is_spelled(token_map)
    assert {token_map.special_tokens[text] for text in ("<s>", "[INST]")} == {1, 3}


def test_a_tiktoken_file_gives_the_ids_of_tiktoken():
    data = (FOLDER / "qwen.tiktoken").read_bytes()
    rows = [line.split() for line in data.splitlines() if line]
    ranks = {base64.b64decode(token): int(rank) for token, rank in rows}
    reference = tiktoken.Encoding("qwen", pat_str=CUTS["qwen"].pattern, mergeable_ranks=ranks, special_tokens={})
    agree(
        load_map(build_map(data, cut=CUTS["qwen"], special_tokens={"<|endoftext|>": len(ranks)})),
        lambda text: reference.encode(text, disallowed_special=()),
    )


def byte_level_gguf(name: str, pre: str) -> bytes:
    """A model file with a tokenizer.json's vocabulary, its added tokens typed as llama.cpp's converter types them."""
    return gguf_model(
        {
            **vocabulary_pairs(json.loads((FOLDER / f"{name}.json").read_bytes())),
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.bos_token_id": 0,
            "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.add_bos_token": False,
        }
    )


Engine = Callable[[Path], AbstractContextManager[Callable[[str], list[int]]]]


@pytest.mark.engine
@pytest.mark.parametrize("pre", GGUF_NAMES)
def test_every_cut_that_gguf_names_gives_the_ids_of_llama_cpp(engine_of: Engine, tmp_path, pre):
    data = byte_level_gguf(OTHER_VOCABULARIES.get(pre, "qwen2_5"), pre)
    (tmp_path / "model.gguf").write_bytes(data)
    with engine_of(tmp_path / "model.gguf") as tokenize:
        agree(load_map(build_map(data)), tokenize, list(filter(is_older, TEXTS)))


@pytest.mark.engine
@pytest.mark.parametrize("blanks", ["added", "merged"])
def test_merges_of_a_sentencepiece_vocabulary_give_the_ids_of_llama_cpp(engine_of: Engine, tmp_path, blanks):
    """As in files of Gemma 4, whose own vocabulary no package carries: here with that of Gemma 3."""
    document = json.loads((FOLDER / "gemma3.json").read_bytes())
    if blanks == "merged":
        document["added_tokens"] = [each for each in document["added_tokens"] if each["content"].strip("\n\t▁ ")]
    data = gguf_model(
        {
            **vocabulary_pairs(document),
            "tokenizer.ggml.model": "gemma4",
            "tokenizer.ggml.bos_token_id": 2,
            "tokenizer.ggml.eos_token_id": 1,
        }
    )
    (tmp_path / "model.gguf").write_bytes(data)
    with engine_of(tmp_path / "model.gguf") as tokenize:
        agree(load_map(build_map(data)), tokenize)


@pytest.mark.engine
@pytest.mark.parametrize("name", SENTENCEPIECE[:2])
def test_a_sentencepiece_model_in_a_gguf_file_gives_the_ids_of_llama_cpp(engine_of: Engine, tmp_path, name):
    pieces, _, _ = read_pieces((FOLDER / name).read_bytes())
    data = gguf_model(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [piece.text for piece in pieces],
            "tokenizer.ggml.scores": [piece.score for piece in pieces],
            "tokenizer.ggml.token_type": [piece.kind for piece in pieces],
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.add_bos_token": False,
        }
    )
    (tmp_path / "model.gguf").write_bytes(data)
    with engine_of(tmp_path / "model.gguf") as tokenize:
        agree(load_map(build_map(data)), tokenize)
