"""Requests to a vLLM server other than generations, regardless of the connection.

Turns questions into requests and answers into facts, ids and texts. Its tokenizer always reads the text of a special
token as that token; its template gives ids, never text. What it does not report about the template is found out from a
rendering.

Reference: vLLM 0.32, vllm/entrypoints/serve/tokenize/protocol.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.engine.interface import Activity, EngineFacts, Message, Options
from gateway.engine.wire.http.answers import IDS, count_of, expecting
from gateway.engine.wire.http.questions import Ask, JsonQuestions
from gateway.engine.wire.vllm.json import IDS_PATH, KIND, Shown, activity_of, read_facts, served_name
from gateway.errors import EngineRefused

_NAME: Final = "lookup_of_probe"
_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "-",
        "parameters": {"type": "object", "properties": {"value": {"type": "string"}}},
    },
}
_CALL: Final[dict[str, Any]] = {
    "type": "function",
    "id": "abcdefgh0",
    "function": {"name": _NAME, "arguments": '{"value": "-"}'},
}
_TURNS: Final[tuple[Message, ...]] = (
    {"role": "user", "content": "?"},
    {"role": "assistant", "content": "", "reasoning": ".", "reasoning_content": ".", "tool_calls": [_CALL]},
    {"role": "tool", "content": "-", "tool_call_id": _CALL["id"], "name": _NAME},
)
_KEPT_REASONING: Final[Options] = {
    "preserve_thinking": True,
    "clear_thinking": False,
    "truncate_history_thinking": False,
}
"""The switches of templates that can show the model's reasoning of earlier turns; other templates ignore them."""


class Questions(JsonQuestions):
    """Questions to one vLLM server."""

    def __init__(
        self, url: str, ask: Ask, *, at_once: int, served: str | None = None, keep_reasoning: bool = False
    ) -> None:
        """Ask nothing yet.

        Args:
            url: the server's.
            ask: sends one question.
            at_once, served: `at_once` and `served_model` of `EngineConfig`.
            keep_reasoning: whether templates are asked to show the model's reasoning of earlier turns.
        """
        super().__init__(url, KIND, ask)
        self._at_once = at_once
        self._wanted = served
        self._keep_reasoning = keep_reasoning

    async def facts(self) -> EngineFacts:
        """`GET /v1/models` and `/metrics`, what the engine puts before an empty prompt, and what its template shows."""
        models = await self.models()
        status, metrics = await self._ask("GET", "/metrics", b"")
        bos = await self._post("/tokenize", {"prompt": "", "add_special_tokens": True})
        shown = await self._shown()
        with expecting(self._url, KIND):
            told = metrics.decode("utf-8", "replace") if status == 200 else ""
            return read_facts(models, served_name(models, self._wanted), told, bos, shown, self._at_once)

    async def models(self) -> dict[str, Any]:
        """`GET /v1/models`."""
        return await self._get("/v1/models")

    async def model(self) -> str:
        """The name by which its model is requested."""
        models = await self.models()
        with expecting(self._url, KIND):
            return served_name(models, self._wanted)

    async def work(self) -> Activity | None:
        """`GET /metrics`: the figures that its engine process reports after each step."""
        status, metrics = await self._ask("GET", "/metrics", b"")
        return activity_of(metrics) if status == 200 else None

    async def takes_ids(self) -> bool:
        """Whether it has the endpoint that takes only ids (`--enable-scale-out`)."""
        status, _ = await self._ask("POST", IDS_PATH, b"{}")
        return status not in (404, 405)

    async def tokenize(self, text: str, *, specials: bool) -> list[int]:
        """`POST /tokenize`, without BOS. Special tokens are always read, whatever `specials` says."""
        del specials
        return await self._ids({"prompt": text, "add_special_tokens": False})

    async def tokenize_each(self, texts: Sequence[str], *, specials: bool) -> list[list[int]]:
        """One request for each: vLLM takes one text at a time, and its connections last."""
        return [await self.tokenize(text, specials=specials) for text in texts]

    async def embed(
        self, inputs: Sequence[Sequence[int]], encoding_format: str | None, dimensions: int | None
    ) -> dict[str, Any]:
        """See `JsonQuestions.embed`. A server that generates does not have the endpoint at all."""
        try:
            return await super().embed(inputs, encoding_format, dimensions)
        except EngineRefused as error:
            if error.status in (404, 405):
                raise EngineRefused(
                    "this vLLM server makes no embeddings: it was started with a model that generates text", 501
                ) from error
            raise

    async def rendered(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), options: Options | None = None
    ) -> list[int]:
        """Ids of the chat template over `messages`, with the generation prompt at the end (`POST /tokenize`)."""
        body: dict[str, Any] = {"messages": [_read_by_both(message) for message in messages]}
        if tools:
            body["tools"] = list(tools)
        told = {**(_KEPT_REASONING if self._keep_reasoning else {}), **(options or {})}
        if told:
            body["chat_template_kwargs"] = told
        return await self._ids(body)

    async def _ids(self, body: dict[str, Any]) -> list[int]:
        answer = await self._post("/tokenize", body)
        with expecting(self._url, KIND):
            return [count_of(token, 0, IDS - 1) for token in answer["tokens"]]

    async def _shown(self) -> Shown:
        """The template if the server shows it (`--enable-tokenizer-info-endpoint`), otherwise a rendering by it."""
        with_tools = await self._text_of(_TURNS, [_TOOL])
        supports_tools = with_tools.count(_NAME) > 1
        try:
            source = (await self._get("/tokenizer_info")).get("chat_template")
        except EngineRefused:
            source = None
        if isinstance(source, str):
            return Shown(source, is_source=True, supports_tools=supports_tools)
        return Shown(with_tools or await self._text_of(_TURNS[:1], []), is_source=False, supports_tools=supports_tools)

    async def _text_of(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        """A rendering as the server's own text; empty if the template refuses the conversation."""
        try:
            ids = await self.rendered(messages, tools)
        except EngineRefused:
            return ""
        answer = await self._post("/detokenize", {"tokens": ids})
        with expecting(self._url, KIND):
            return str(answer["prompt"])


def _read_by_both(message: Message) -> Message:
    """A message for servers from before and after `reasoning_content` was renamed to `reasoning`."""
    return {**message, "reasoning": message["reasoning_content"]} if "reasoning_content" in message else message
