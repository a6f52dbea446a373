"""The wire of a vLLM server, spoken in front of a real llama.cpp server: a program for tests, in a process of its own.

`python -m tests.standins.vllm_wire_over_llama_cpp LLAMA_URL MODEL.gguf [--old]` prints its address. The ids, the
template and the cache's numbers are llama.cpp's; what is vLLM's alone is played: whole blocks of 16 ids, salts (by
slots that are kept apart), errors under HTTP 200, structural tags (as lazy grammars; those that the gateway writes, no
others). `--old`: as without `--enable-scale-out`. Its requests and answers
are held against vLLM's own OpenAPI document (`tests/third_party/vllm`).
"""

import asyncio
import json
import re
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway.engine.interface import GenerateRequest, GenerationEnd, Sampling
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.errors import EngineError, EngineRefused, GrammarRefused
from gateway.toolcalls.formats.format import CallTrigger
from leaf_sdk.fetch import map_bytes
from leaf_sdk.vocab import Detokenizer, TokenMap, load_map

BLOCK = 16
MODEL = "stand-in"
ADAPTER = "poet"
POEM = "Roses are red."
"""What the adapter writes, whatever it is asked: a llama.cpp server has none to load."""


@dataclass
class StandIn:
    """One server."""

    engine: LlamaCpp
    token_map: TokenMap
    slots: SlotTable
    context: int
    old: bool

    def routes(self) -> list[Route]:
        found = [
            Route("/health", self.health),
            Route("/version", self.version),
            Route("/metrics", self.metrics),
            Route("/v1/models", self.models),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]
        generate = self.forbidden if self.old else self.generate
        return [*found, Route("/inference/v1/generate", generate, methods=["POST"])]

    async def health(self, request: Request) -> Response:
        return Response()

    async def version(self, request: Request) -> Response:
        return JSONResponse({"version": "0.32.0"})

    async def metrics(self, request: Request) -> Response:
        return PlainTextResponse(f'vllm:cache_config_info{{block_size="{BLOCK}",cache_dtype="auto",engine="0"}} 1.0\n')

    async def models(self, request: Request) -> Response:
        model = {"id": MODEL, "object": "model", "owned_by": "vllm", "root": MODEL, "max_model_len": self.context}
        adapter = {**model, "id": ADAPTER, "root": "/adapters/poet", "parent": MODEL, "max_model_len": None}
        return JSONResponse({"object": "list", "data": [{**model, "parent": None}, adapter]})

    async def tokenize(self, request: Request) -> Response:
        asked = await request.json()
        text = asked.get("prompt")
        if text is None:
            if asked.get("tools") == []:
                return _refused("tools must not be an empty array", 400)
            try:
                text = await self.engine.apply_template(asked["messages"], asked.get("tools") or ())
            except EngineRefused as error:
                return _refused(error.message, 400)
        # It reads special tokens in any text, and can't be told not to.
        ids = await self.engine.tokenize(text, specials=True)
        return JSONResponse({"count": len(ids), "max_model_len": self.context, "tokens": ids, "token_strs": None})

    async def detokenize(self, request: Request) -> Response:
        return JSONResponse({"prompt": self.token_map.decode((await request.json())["tokens"])})

    async def forbidden(self, request: Request) -> Response:
        return _refused("Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out.", 403)

    async def generate(self, request: Request) -> Response:
        asked = await request.json()
        if "token_ids" not in asked or "sampling_params" not in asked:
            return _refused("2 validation errors: body.token_ids, body.sampling_params: Field required", 400)
        return self._answer(asked, asked["token_ids"], asked["sampling_params"], _ids_message, 16)

    async def completions(self, request: Request) -> Response:
        asked = await request.json()
        return self._answer(asked, asked["prompt"], asked, _completion_message, 16)

    async def chat(self, request: Request) -> Response:
        asked = await request.json()
        if asked.get("tools") or not asked.get("stream"):
            return _refused("only streams without tools are played here", 400)
        prompt = await self.engine.tokenize(await self.engine.apply_template(asked["messages"], ()), specials=True)
        told = ("temperature", "top_p", "seed", "max_tokens")
        sampling = {name: asked[name] for name in told if name in asked}
        message = ChatMessages(self.token_map, ids=bool(asked.get("return_token_ids")))
        return self._answer(asked, prompt, sampling, message, self.context)

    def _answer(
        self, asked: dict[str, Any], prompt: list[int], sampling: dict[str, Any], message: Any, most: int
    ) -> Response:
        if asked.get("model") == ADAPTER:
            sampling = {**sampling, "structured_outputs": {"grammar": f'root ::= "{POEM}"'}}
        elif asked.get("model") not in (None, MODEL):
            return _refused(f"The model `{asked['model']}` does not exist.", 404)
        if any(not self.token_map.has_id(token_id) for token_id in prompt):
            return _refused("Token id is out of vocabulary", 400)
        if len(prompt) >= self.context:
            return _refused(f"This model's maximum context length is {self.context} tokens", 400)
        stream = self._stream(asked, prompt, sampling, message, sampling.get("max_tokens", most))
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _stream(
        self, asked: dict[str, Any], prompt: list[int], sampling: dict[str, Any], message: Any, most: int
    ) -> AsyncIterator[str]:
        weighed = sampling.get("logprobs") is not None
        known = ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty")
        bias = tuple((int(token_id), value) for token_id, value in (sampling.get("logit_bias") or {}).items())
        sampled = Sampling(**{name: sampling[name] for name in known if name in sampling}, logit_bias=bias)
        held: list[int] = []
        outputs = sampling.get("structured_outputs") or {}
        try:
            grammar, triggers = self._grammar(outputs)
            async with AsyncExitStack() as stack:
                place = await stack.enter_async_context(self.slots.take(prompt, asked.get("cache_salt") or "-"))
                request = GenerateRequest(
                    prompt,
                    place.pinned,
                    min(most, self.context - len(prompt)),
                    sampled,
                    grammar=grammar,
                    triggers=triggers,
                    reuse=place.reuse,
                    logprobs=weighed,
                    top_logprobs=sampling.get("logprobs") or 0,
                )
                stack.callback(lambda: place.slot.holds([*prompt, *held], at_rest=False, answered=True))
                end = None
                last: Any = None
                async for event in await stack.enter_async_context(self.engine.generate(request)):
                    if isinstance(event, GenerationEnd):
                        end = event
                        break
                    if last is not None:
                        yield message(last, weighed, None)
                    last = event
                    held += event.ids
                assert end is not None
                yield message(last, weighed, end.reason)
                if end.ended_by is not None:
                    held.pop()
        except GrammarRefused:
            what = "structural tag" if "structural_tag" in outputs else "grammar"
            words = f"Invalid {what} specification."
            yield _event({"error": {"message": words, "type": "BadRequestError", "code": 400}})
        except EngineError as error:
            yield _event({"error": {"message": error.message, "type": "InternalServerError", "code": 500}})
        else:
            cached = end.timings.cache_n // BLOCK * BLOCK
            yield _event(_usage(len(prompt), end.timings.generated_n, cached, message is _ids_message))
        yield "data: [DONE]\n\n"

    def _grammar(self, outputs: dict[str, Any]) -> tuple[str | None, list[CallTrigger]]:
        """What llama.cpp is asked to hold. Raises `GrammarRefused` for what it can't be, as vLLM does."""
        if "structural_tag" not in outputs:
            return (_in_gbnf(outputs["grammar"]) if "grammar" in outputs else None), []
        try:
            grammar, ids = waiting_grammar(outputs["structural_tag"])
        except (ValueError, LookupError, TypeError) as error:
            raise GrammarRefused(repr(error), 400) from error
        return grammar, [CallTrigger(self.token_map.token_bytes(each).decode(), each) for each in ids]


def waiting_grammar(tag: str) -> tuple[str, list[int]]:
    """The lazy grammar that a structural tag stands for, and the ids of what arms it."""
    told = json.loads(tag)["format"]
    free, held = told["elements"]
    kinds = (told["type"], free["type"], held["type"], held["content"]["type"])
    if kinds != ("sequence", "any_tokens", "optional", "grammar"):
        raise ValueError(f"not played here: {kinds}")
    return _in_gbnf(held["content"]["grammar"]), free["exclude_tokens"]


def _in_gbnf(grammar: str) -> str:
    """xgrammar's tokens as llama.cpp names them."""
    pieces = r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|Token\((\d+)\)'
    return re.sub(pieces, lambda found: f"<[{found[1]}]>" if found[1] else found[0], grammar, flags=re.DOTALL)


class ChatMessages:
    """The messages of one stream of chat completions."""

    def __init__(self, token_map: TokenMap, *, ids: bool) -> None:
        self._text = Detokenizer(token_map)
        self._ids = ids

    def __call__(self, event: Any, weighed: bool, reason: str | None) -> str:
        """The message of one event."""
        ids = list(event.ids) if event is not None else []
        delta = {"content": self._text.feed(ids)}
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        told = {"token_ids": ids} if self._ids else {}
        message = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        return _event({**message, "choices": [{**choice, **told}]})


def _ids_message(event: Any, weighed: bool, reason: str | None) -> str:
    ids = list(event.ids) if event is not None else []
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": reason,
        "stop_reason": None,
        "token_ids": ids,
        "logprobs": None,
    }
    if weighed and event is not None:
        told = zip(ids, event.logprobs, event.tops or [()] * len(ids), strict=True)
        choice["logprobs"] = {"content": [_weighed(*each) for each in told]}
    return _event({"request_id": secrets.token_hex(8), "usage": None, "output_mode": "tokens", "choices": [choice]})


def _weighed(token_id: int, logprob: float | None, tops: Any) -> dict[str, Any]:
    named = [{"token_id": each, "logprob": value, "rank": place} for place, (each, value) in enumerate(tops, 1)]
    own = {"token_id": token_id, "logprob": -9999.0 if logprob is None else logprob, "rank": 1}
    return {**own, "top_logprobs": [own, *(each for each in named if each["token_id"] != token_id)]}


def _completion_message(event: Any, weighed: bool, reason: str | None) -> str:
    ids = list(event.ids) if event is not None else []
    choice: dict[str, Any] = {"index": 0, "text": "", "finish_reason": reason, "stop_reason": None, "token_ids": ids}
    if weighed and event is not None:
        tops = [{f"token_id:{each}": value for each, value in place} for place in event.tops]
        choice["logprobs"] = {
            "tokens": [f"token_id:{each}" for each in ids],
            "token_logprobs": list(event.logprobs),
            "top_logprobs": tops,
        }
    return _event({"id": "cmpl-1", "object": "text_completion", "created": 1, "model": MODEL, "choices": [choice]})


def _usage(prompt: int, generated: int, cached: int, by_ids: bool) -> dict[str, Any]:
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return {
        **({"request_id": "r", "output_mode": "tokens"} if by_ids else {"id": "cmpl-1"}),
        "choices": [],
        "usage": usage,
    }


def _event(message: dict[str, Any]) -> str:
    return f"data: {json.dumps(message)}\n\n"


def _refused(words: str, status: int) -> Response:
    error = {"message": words, "type": "BadRequestError", "param": None, "code": status}
    return JSONResponse({"error": error}, status)


async def main(url: str, model: Path, *, old: bool) -> None:
    """Serve until the process is ended."""
    token_map = load_map(map_bytes(model))
    engine = LlamaCpp(url, token_map=token_map)
    facts = await engine.facts()
    slots = SlotTable(facts.slots, at_rest=engine.is_at_rest, isolate=True)
    app = Starlette(routes=StandIn(engine, token_map, slots, facts.context, old).routes())
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_keep_alive=600))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        await server.serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), old="--old" in sys.argv))
