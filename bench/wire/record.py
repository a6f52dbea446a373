"""Records again what the wire is measured with: `python -m bench.wire.record`, ten minutes on the packaged engine.

The recorded streams are greedy output of SmolLM2 (it soon repeats itself), a tool conversation of twelve calls that a
grammar forces and twelve greedy answers, and this repository's own prose and code. The dictionaries are trained on
other prose, other code and other output. `streams` has what is measured with them.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2

from bench.wire.streams import FOLDER
from gateway.config import EngineConfig
from gateway.engine.embedded.engine_process import embedded_server
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk import TokenMap, open_map
from leaf_sdk.wire import Format, Frame, FrameWriter, train

ROOT: Final = Path(__file__).parents[2]
_PROMPT: Final = "The history of the lighthouse"
_OTHER_PROMPTS: Final = (
    "Once upon a time in a small village",
    "To bake bread at home, you need",
    "The main difference between Python and Java is",
    "def fibonacci(n):",
    "Dear Sir or Madam,",
    "The French Revolution began",
    "A neural network is",
    "The best way to learn a language",
    "In the deep ocean, there are",
    "class Stack:",
    "Photosynthesis is the process",
    "My favourite book is",
    "How to fix a bicycle tyre:",
    "The weather in April",
    "Electric cars are",
    "SELECT name FROM",
    "The Roman Empire",
    "When the train arrived",
    "Water boils at",
)
_WEATHER: Final = {
    "Paris": "12 C, rain",
    "Oslo": "-3 C, snow",
    "Lima": "19 C, fog",
    "Cairo": "31 C, clear",
    "Kyoto": "8 C, wind",
    "Quito": "17 C, cloud",
    "Delhi": "27 C, haze",
    "Perth": "22 C, clear",
    "Rome": "14 C, rain",
    "Accra": "29 C, storm",
    "Turin": "9 C, mist",
    "Nice": "16 C, clear",
}
_PROSE: Final = ("docs/adr/*.md", "docs/architecture.md", "docs/tool-authors.md")
_CODE: Final = ("leaf_sdk/vocab/*.py",)
_OTHER_PROSE: Final = (
    "README.md",
    "CONTRIBUTING.md",
    "bench/README.md",
    *(f"docs/{name}.md" for name in ("configure", "maps", "mcp-clients", "metrics", "openai-apps", "operate")),
)
_OTHER_CODE: Final = ("gateway/proxy/**/*.py", "gateway/agent/*.py")
_LONGEST: Final = 4096
_DICTIONARY: Final = 64 * 2**10
_SAMPLE: Final = 256
"""Ids in one training sample."""


class _Engine:
    """The packaged model behind an HTTP client."""

    def __init__(self, url: str, client: httpx2.AsyncClient) -> None:
        self._url = url
        self._client = client

    async def complete(self, prompt: str | list[int], count: int, **settings: Any) -> list[int]:
        """Generate greedily, and return the ids."""
        body = {"prompt": prompt, "n_predict": count, "temperature": 0, "return_tokens": True, **settings}
        answer = await self._client.post(f"{self._url}/completion", json=body)
        return answer.raise_for_status().json()["tokens"]


async def _tool_conversation(engine: _Engine, token_map: TokenMap) -> list[int]:
    head, tail = token_map.encode("<tool_call>\n"), token_map.encode("\n</tool_call>")
    context, generated = token_map.encode("system\nYou may call get_weather.\n"), list[int]()
    for city, weather in _WEATHER.items():
        context += token_map.encode(f"user\nWhat is the weather in {city}, and what should I wear?\nassistant\n")
        call = head + await engine.complete(context + head, 60, json_schema=_schema(city)) + tail
        context += call + token_map.encode(f"\ntool\n{weather}\nassistant\n")
        answer = await engine.complete(context, 64)
        context += answer + token_map.encode("\n")
        generated += call + answer
    return generated


def _schema(city: str) -> dict[str, Any]:
    arguments = {"city": {"const": city}, "unit": {"enum": ["celsius", "fahrenheit"]}}
    properties = {
        "name": {"const": "get_weather"},
        "arguments": {"type": "object", "properties": arguments, "required": ["city", "unit"]},
    }
    return {"type": "object", "properties": properties, "required": ["name", "arguments"]}


def _texts(patterns: Iterable[str]) -> str:
    files = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def write_dictionaries(texts: Sequence[Sequence[int]]) -> None:
    """Train one dictionary for each format on bodies cut from these streams of ids, the most diverse last."""
    forms: tuple[Format, ...] = ("msgpack", "protobuf")
    for form in forms:
        samples = [_body(form, ids[at : at + _SAMPLE]) for ids in texts for at in range(0, len(ids), _SAMPLE)]
        (FOLDER / "dictionaries" / f"{form}.zstd").write_bytes(train(samples, _DICTIONARY).data)


def _body(form: Format, ids: Sequence[int]) -> bytes:
    writer = FrameWriter(form)
    frames = (Frame(tuple(ids[:1])), Frame(tuple(ids[1:])), Frame((), True, "length"))
    return b"".join(writer.write(frame) for frame in frames)


async def _record() -> None:
    token_map = open_map(packaged_model())
    async with embedded_server(EngineConfig(context=8192, slots=1, threads=1, cache_mib=0)) as server:
        headers = {"Authorization": f"Bearer {server.key}"}
        async with httpx2.AsyncClient(timeout=1200, headers=headers) as client:
            engine = _Engine(server.url, client)
            greedy = await engine.complete(_PROMPT, _LONGEST, ignore_eos=True)
            tool = await _tool_conversation(engine, token_map)
            others = [await engine.complete(prompt, 200, ignore_eos=True) for prompt in _OTHER_PROMPTS]
    prose, code = (token_map.encode(_texts(patterns))[:_LONGEST] for patterns in (_PROSE, _CODE))
    corpora = {"greedy": greedy, "tool": tool, "prose": prose, "code": code}
    (FOLDER / "corpora.json").write_text(json.dumps(corpora, separators=(",", ":")) + "\n", encoding="utf-8")
    write_dictionaries([*others, token_map.encode(_texts(_OTHER_CODE)), token_map.encode(_texts(_OTHER_PROSE))])


if __name__ == "__main__":
    anyio.run(_record)
