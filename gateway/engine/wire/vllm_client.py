"""Any unmodified vLLM server, over HTTP: generations, and the other questions that it is asked.

Its tokenizer always reads the text of a special token as that token; its template gives ids, never text. What it does
not report about the template is found out from a rendering. `vllm_json.py` reads its streams and answers.

Reference: vLLM 0.32, vllm/entrypoints/serve/tokenize/protocol.py.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from gateway.engine.interface import (
    Activity,
    EngineFacts,
    GenerateRequest,
    GenerationEvent,
    Message,
    Options,
    Proof,
    Provable,
    Proven,
    Timings,
)
from gateway.engine.rendering.foreign_text import MarkerGuard
from gateway.engine.wire.engine_answers import IDS, Ask, JsonQuestions, count_of, expecting
from gateway.engine.wire.engine_client import EngineClient, Sent
from gateway.engine.wire.vllm_json import (
    COMPLETIONS_PATH,
    IDS_PATH,
    KIND,
    PROGRAMS_PATH,
    RENDER_PATH,
    SESSION_HEADER,
    GenerateStream,
    ShownTemplate,
    activity_of,
    completion_body,
    ids_body,
    read_facts,
    schedules_programs,
    served_name,
)
from gateway.errors import EngineError, EngineRefused, EngineUnavailable, MapDiffers
from gateway.observe.logs import get_logger
from leaf_sdk.vocab import TokenMap

log = get_logger("engine")

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
_QUESTION: Final[dict[str, Any]] = {"messages": _TURNS[:1]}
_KEPT_REASONING: Final[Options] = {
    "preserve_thinking": True,
    "clear_thinking": False,
    "truncate_history_thinking": False,
}
"""The switches of templates that can show the model's reasoning of earlier turns; other templates ignore them."""


class VllmQuestions(JsonQuestions):
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
        self.effort_is_field = False
        """What `takes_effort_as_field` has found."""

    async def facts(self) -> EngineFacts:
        """`GET /v1/models` and `/metrics`, what the engine puts before an empty prompt, what its template shows, and
        whether a router before it schedules programs."""
        models = await self.models()
        status, metrics = await self._ask("GET", "/metrics", b"")
        bos = await self._post("/tokenize", {"prompt": "", "add_special_tokens": True})
        shown = await self._shown()
        retention = schedules_programs(*await self._ask("GET", PROGRAMS_PATH, b""))
        with expecting(self._url, KIND):
            told = metrics.decode("utf-8", "replace") if status == 200 else ""
            served = served_name(models, self._wanted)
            return read_facts(models, served, told, bos, shown, self._at_once, retention=retention)

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
        # Without the flag, newer servers forbid it (403) and older ones do not have it.
        return status not in (403, 404, 405, 501)

    async def takes_effort_as_field(self) -> bool:
        """Whether the effort of reasoning counts only as a field of a chat (`POST /v1/chat/completions/render`).

        From 0.33 on it does with gpt-oss, which vLLM renders by code of its own instead of by the template.
        """
        low, high = [{**_QUESTION, "chat_template_kwargs": {"reasoning_effort": effort}} for effort in ("low", "high")]
        try:
            if await self._ids(low) != await self._ids(high):
                return False
            return await self._rendered_chat(_QUESTION, "low") != await self._rendered_chat(_QUESTION, "high")
        except EngineError:
            return False

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
        effort = told.get("reasoning_effort")
        if self.effort_is_field and isinstance(effort, str):
            # An effort that the server does not know has no effect, as with a template.
            with suppress(EngineRefused):
                return await self._rendered_chat(body, effort)
        return await self._ids(body)

    async def _ids(self, body: dict[str, Any]) -> list[int]:
        answer = await self._post("/tokenize", body)
        with expecting(self._url, KIND):
            return [count_of(token, 0, IDS - 1) for token in answer["tokens"]]

    async def _rendered_chat(self, body: Mapping[str, Any], effort: str) -> list[int]:
        # Without a choice of tools it asks how calls are to be parsed.
        answer = await self._post(RENDER_PATH, {**body, "tool_choice": "none", "reasoning_effort": effort})
        with expecting(self._url, KIND):
            return [count_of(token, 0, IDS - 1) for token in answer["token_ids"]]

    async def _shown(self) -> ShownTemplate:
        """The template if the server shows it (`--enable-tokenizer-info-endpoint`), otherwise a rendering by it."""
        with_tools = await self._text_of(_TURNS, [_TOOL])
        supports_tools = with_tools.count(_NAME) > 1
        try:
            source = (await self._get("/tokenizer_info")).get("chat_template")
        except EngineRefused:
            source = None
        if isinstance(source, str):
            return ShownTemplate(source, is_source=True, supports_tools=supports_tools)
        return ShownTemplate(
            with_tools or await self._text_of(_TURNS[:1], []), is_source=False, supports_tools=supports_tools
        )

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


# Renderings that come as ids, as the text that `engine/rendering/template.py` needs, and proof that this is lossless.
#
# The words of others go into the rendering as marks or with separators (`engine/rendering/foreign_text.py`), so it does
# not matter which ids the server's tokenizer gives them, as long as the map decodes the same text. That is proven here.

_SEPARATOR: Final = "\U000f1234"
"""One of the characters from which separators and marks are drawn (`engine/rendering/foreign_text.py`)."""
_MARKERS: Final = 64
"""Special tokens whose guarded text is tried."""


class Renderer(Protocol):
    """An engine that returns renderings as ids."""

    async def rendered(self, messages: Sequence[Message]) -> list[int]:
        """See `VllmQuestions`."""
        ...


def text_of_ids(ids: Sequence[int], token_map: TokenMap) -> str:
    """The text of a rendering. Raises `EngineRefused` for an id that the map does not have."""
    unknown = next((token_id for token_id in ids if not token_map.has_id(token_id)), None)
    if unknown is not None:
        raise EngineRefused(f"the engine's chat template gave the id {unknown}, which the map does not have", 502)
    return token_map.decode(ids)


async def check_rendering(engine: Renderer, proven: Proven) -> None:
    """Raise `MapDiffers` unless a rendering's ids are those of its text and guarded words of others stay text in it."""
    token_map = proven.token_map
    guard = MarkerGuard(token_map.special_texts)
    markers = sorted(token_map.special_texts)[:_MARKERS]
    guarded = " ".join(guard.guarded(marker, _SEPARATOR) for marker in markers if len(marker) > 1) + f" {_SEPARATOR}?"
    plain = await engine.rendered([{"role": "user", "content": "?"}])
    ids = await engine.rendered([{"role": "user", "content": guarded}])
    text = text_of_ids(ids, token_map)
    own = token_map.encode(text, specials=True)
    shown = guarded in text and _specials(ids, token_map) == _specials(plain, token_map)
    if own != ids or not shown:
        raise MapDiffers(
            f"the engine's ids for the chat template of {proven.facts.model!r} do not match the map {token_map.id!r}: "
            "the template's own text can't be told from that of messages; check that the map is this model's",
            sample=text[:200],
            map_ids=own[:200],
            engine_ids=ids[:200],
        )


def _specials(ids: Sequence[int], token_map: TokenMap) -> list[int]:
    return [token_id for token_id in ids if token_id in token_map.special_ids]


# Turns `GenerateRequest` into `POST /inference/v1/generate`, or into `/v1/completions` if the server does not have
# that. It may be a router in front of several.

_INVALID: Final = (400, 422)
"""Statuses of a request with a field that the server does not take."""


class Vllm(VllmQuestions, EngineClient):
    """Client of one vLLM server. Close it with `aclose`."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        idle_timeout: float = 60.0,
        at_once: int,
        served: str | None = None,
        token_map: TokenMap | None = None,
        keep_reasoning: bool = False,
        on_loss: Callable[[], None] = lambda: None,
        on_end: Callable[[Timings], None] = lambda timings: None,
    ) -> None:
        """Ask nothing yet.

        Args:
            url, api_key, idle_timeout, on_loss, on_end: see `EngineClient`.
            at_once: generations that may run at a time, which the server does not report.
            token_map: the map whose ids are accepted, until `prove` finds one.
            served, keep_reasoning: see `VllmQuestions`.
        """
        EngineClient.__init__(
            *(self, url),
            api_key=api_key,
            idle_timeout=idle_timeout,
            token_map=token_map,
            on_loss=on_loss,
            on_end=on_end,
            keep_streams=True,
        )
        VllmQuestions.__init__(
            *(self, self.url, self._ask_anywhere), at_once=at_once, served=served, keep_reasoning=keep_reasoning
        )
        self._served = ""
        self._takes_ids = True
        self._takes_retention = True
        """Whether it has refused no request for its `retention`."""

    async def prove(self, proof: Proof) -> Proven:
        """See `EngineClient.prove`. The template's rendering is proven too, since it consists of ids."""
        return await super().prove(partial(self._whole_proof, proof))

    async def apply_template(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Options | None = None,
    ) -> str:
        """Render with the engine's own template, and turn its ids into text by our map."""
        if self._token_map is None:
            raise EngineUnavailable("vLLM's chat template can't be read before a token map is loaded; try again")
        return text_of_ids(await self.rendered(messages, tools, options), self._token_map)

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        """See `EngineClient.generate`. A request that is refused is sent again without its hints."""
        if not (self._takes_ids and self._takes_retention):
            request = replace(request, retention=None)
        async with AsyncExitStack() as stack:
            try:
                events = await stack.enter_async_context(super().generate(request))
            except EngineRefused as error:
                if request.retention is None or error.status not in _INVALID:
                    raise
                events = await stack.enter_async_context(super().generate(replace(request, retention=None)))
                self._takes_retention = False
                log.warning(
                    "the server refuses vllm_xargs.agentic_context, so it is no longer told how long a conversation's "
                    "cache will be needed; check that vllm-router and vLLM fit together",
                    url=self.url,
                    error=error.message,
                )
            yield events

    async def _whole_proof(self, proof: Proof, questions: Provable) -> Proven:
        proven = await proof(questions)
        asked = questions if isinstance(questions, VllmQuestions) else self
        await check_rendering(asked, proven)
        self._served, self._takes_ids = await asked.model(), await asked.takes_ids()
        self.effort_is_field = await asked.takes_effort_as_field()
        return proven

    def _questions(self, ask: Ask) -> VllmQuestions:
        return VllmQuestions(
            *(self.url, ask), at_once=self._at_once, served=self._wanted, keep_reasoning=self._keep_reasoning
        )

    def _sent(self, request: GenerateRequest) -> Sent:
        stream = GenerateStream(self.url, self._token_map, request)
        headers = {SESSION_HEADER: request.session.hex()} if request.session else {}
        path, body = (IDS_PATH, ids_body) if self._takes_ids else (COMPLETIONS_PATH, completion_body)
        return Sent(path, json.dumps(body(request, self._served)).encode(), stream, headers)
