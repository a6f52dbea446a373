"""The same search by the meaning of texts: vectors of a small BERT model, in numpy.

The gateway has no such search; this measures what one would find. Reads the files of a sentence-transformers model
(`model.safetensors`, `tokenizer.json`, `config.json`), all-MiniLM-L6-v2 for one, and needs numpy, which the project
does not.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from bench.tool_search.hits import Ranking
from gateway.proxy.naming import ToolEntry
from gateway.proxy.tool_search import scores

np: Any = import_module("numpy")
SHARE: Final = 0.3
"""What the words count for beside the meaning."""
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s")
_MOST: Final = 256
"""Tokens of a text that are read: those that the model was trained with."""


class Embedding:
    """The model of a folder."""

    def __init__(self, folder: Path) -> None:
        """Read its weights."""
        raw = (folder / "model.safetensors").read_bytes()
        begin = 8 + int.from_bytes(raw[:8], "little")
        head: dict[str, Any] = json.loads(raw[8:begin])
        self._weights: dict[str, Any] = {}
        for name, each in head.items():
            if each.get("dtype") == "F32":
                place, size = begin + each["data_offsets"][0], math.prod(each["shape"])
                self._weights[name] = np.frombuffer(raw, np.float32, size, place).reshape(each["shape"])
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._layers, self._heads = config["num_hidden_layers"], config["num_attention_heads"]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()

    def vector(self, text: str) -> Any:
        """Return the mean of the last layer, of length 1."""
        ids = self._tokenizer.encode(text).ids[:_MOST]
        words, places, kinds = (
            self._weights[f"embeddings.{each}_embeddings.weight"] for each in ("word", "position", "token_type")
        )
        state = self._normal(words[ids] + places[: len(ids)] + kinds[0], "embeddings")
        for layer in range(self._layers):
            state = self._layer(state, f"encoder.layer.{layer}")
        mean = state.mean(0)
        return mean / np.linalg.norm(mean)

    def _layer(self, state: Any, name: str) -> Any:
        seen = self._linear(self._attention(state, f"{name}.attention.self"), f"{name}.attention.output.dense")
        state = self._normal(state + seen, f"{name}.attention.output")
        inner = self._linear(state, f"{name}.intermediate.dense")
        # GELU, by the usual approximation: numpy has no error function.
        inner = 0.5 * inner * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        return self._normal(state + self._linear(inner, f"{name}.output.dense"), f"{name}.output")

    def _attention(self, state: Any, name: str) -> Any:
        length, width = state.shape
        query, key, value = (
            self._linear(state, f"{name}.{each}").reshape(length, self._heads, -1).transpose(1, 0, 2)
            for each in ("query", "key", "value")
        )
        weights = query @ key.transpose(0, 2, 1) / math.sqrt(width / self._heads)
        weights = np.exp(weights - weights.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return (weights @ value).transpose(1, 0, 2).reshape(length, width)

    def _linear(self, state: Any, name: str) -> Any:
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normal(self, state: Any, name: str) -> Any:
        away = state - state.mean(-1, keepdims=True)
        away /= np.sqrt((away**2).mean(-1, keepdims=True) + 1e-12)
        return away * self._weights[f"{name}.LayerNorm.weight"] + self._weights[f"{name}.LayerNorm.bias"]


def short(each: str, entry: ToolEntry) -> str:
    """Return a tool's server, its name, and the first sentence of its description."""
    server, _, name = each.partition("/")
    described = _SENTENCE.split(" ".join(str(entry.definition.get("description") or "").split()), maxsplit=1)[0]
    return f"{server}: {re.sub('[_-]+', ' ', name)}. {described}"


def long(each: str, entry: ToolEntry) -> str:
    """Return a tool's name and its whole description."""
    return f"{re.sub('[_-]+', ' ', each.partition('/')[2])}. {entry.definition.get('description')}"


def by_meaning(
    tools: Mapping[str, ToolEntry], text: Callable[[str, ToolEntry], str], vector: Callable[[str], Any], share: float
) -> Ranking:
    """Return the ranking by cosine, with this share of the words' score."""
    names, entries = [*tools], [*tools.values()]
    vectors = np.stack([vector(text(each, entry)) for each, entry in tools.items()])

    def ranking(query: str) -> list[str]:
        found = vectors @ vector(query) + share * np.array(scores(entries, query))
        return [names[n] for n in np.argsort(-found, kind="stable")]

    return ranking
