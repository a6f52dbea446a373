"""The same conversation the usual way, for comparison: text in, text out, everything re-tokenized at every turn.

A client of an OpenAI-style server does this without noticing: the history is kept as text, the server renders it with
its template, tokenizes all of it and hopes that its KV cache still fits. Here each step is done explicitly, on the same
engine, in a slot of its own, with the same questions, grammar and greedy sampling.
"""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from codec_demo.drift import Drift, measure_drift
from gateway.context.history.template_messages import with_preamble
from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd, Sampling, Timings
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.proxy.proxy import Proxy
from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.parser import parse
from gateway.toolcalls.schema.spec import ToolSpec


@dataclass(frozen=True, slots=True)
class TextTurn:
    """One generation of the text path. Counts are ids; `ttft`: seconds from when the text is there to the next id."""

    generated: int
    prompt: int
    held: int
    timings: Timings
    ttft: float
    drift: Drift


@dataclass(slots=True)
class TextPath:
    """The conversation as text."""

    ready: ReadyEngine
    proxy: Proxy
    format: Format
    tools: tuple[ToolSpec, ...]
    slot: int
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    turns: list[TextTurn] = field(default_factory=list[TextTurn])
    _wrote: list[int] = field(default_factory=list[int])
    """Ids of the last turn's prompt and output: what the engine's slot holds."""

    async def ask(self, question: str, grammar: str, max_tokens: int) -> str:
        """Ask one question: generate the call under `grammar`, call the tool, generate the answer."""
        self.messages.append({"role": "user", "content": question})
        written = await self._generate(grammar, max_tokens)
        for call in parse(self.format.name, written, self.tools).tool_calls:
            result = await self.proxy.call(call.name, json.loads(call.arguments))
            text = "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
            self.messages.append({"role": "tool", "content": text, "tool_call_id": call.id})
        return await self._generate(None, max_tokens)

    async def _generate(self, grammar: str | None, max_tokens: int) -> str:
        started = time.perf_counter()
        engine, token_map = self.ready.engine, self.ready.token_map
        text = await engine.apply_template(with_preamble(self.messages, self.format, self.tools))
        prompt = await engine.tokenize(text, specials=True)
        request = GenerateRequest(prompt, self.slot, max_tokens, Sampling(temperature=0, seed=1), grammar)
        ids: list[int] = []
        first = 0.0
        async with engine.generate(request) as events:
            async for event in events:
                if isinstance(event, Generated):
                    first = first or time.perf_counter() - started
                    ids += event.ids
                else:
                    self._close(event, prompt, ids, first)
        written = token_map.decode(self._wrote[len(prompt) :])
        self.messages.append({"role": "assistant", "content": written})
        return written

    def _close(self, end: GenerationEnd, prompt: list[int], ids: list[int], first: float) -> None:
        kept = ids if end.ended_by is None else ids[:-1]
        drift = measure_drift(self._wrote, prompt, self.ready.token_map) if self._wrote else Drift(0, None)
        self.turns.append(TextTurn(len(kept), len(prompt), len(self._wrote), end.timings, first, drift))
        self._wrote = [*prompt, *kept]
