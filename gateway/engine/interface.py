"""What the packages above ask of an engine, whichever it is: ids in, ids out.

An engine turns prompt ids into a stream of generated ids and keeps what it has computed. It does not know
conversations, tools or MCP. What engines differ in is stated (`Capabilities`), so that nobody asks which one it is.
`engine/llama_cpp/client.py` and `engine/vllm/client.py` speak to real servers over HTTP; `embedded.py` starts a
llama.cpp server of our own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

from gateway.toolcalls import CallTrigger
from leaf_sdk.vocab import TokenMap

Message = Mapping[str, Any]
"""One chat message in OpenAI's shape: `role`, `content` and what else the role has."""
Options = Mapping[str, str | int | float | bool]
"""What a chat template is told beside the messages."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a kind of engine can do. As it stands: a llama.cpp server."""

    lazy_grammar: bool = True
    """A grammar may hold from a token on, and not from the first id; it names tokens by their ids (`<[id]>`)."""
    salts: bool = False
    """A request may name a salt, and shares cached ids only with those that name the same."""
    sessions: bool = False
    """A request may name its conversation, by which a router in front of several servers knows where its cache is."""
    reuse_block: int = 1
    """Ids that are reused together: of a prompt that goes on, fewer than these may be processed again."""
    plain_tokenize: bool = True
    """Its tokenizer can be told that the text of a special token is text."""
    shows_template: bool = True
    """It tells the text of its chat template; else `EngineFacts.chat_template` is what that makes of a conversation."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a running engine says about itself."""

    model: str
    """Name shown to clients."""
    model_path: str | None
    chat_template: str
    supports_tools: bool
    """False: the template has no place for tool definitions, so they go into a system preamble."""
    vocabulary: int | None
    """Number of ids, when the engine tells."""
    context: int
    """Ids that one slot can hold."""
    slots: int
    bos: tuple[int, ...]
    """Ids that the engine itself puts before a text prompt; empty when it adds none."""
    start_marker: str | None = None
    """What the running process drew at random at its start, where it tells: another one is another process."""
    can: Capabilities = Capabilities()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next id is drawn. `None`: the engine's own default."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    """What is added to the logits of ids; never of special ones, nor of any that the map does not have."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One generation. `prompt` is the whole context as ids; the engine reuses what its slot already holds."""

    prompt: Sequence[int]
    slot: int | None
    """The slot that it must have: one of an engine that is ours alone, and known to be at rest. None: any."""
    max_tokens: int
    sampling: Sampling = Sampling()
    grammar: str | None = None
    """GBNF that the output must match."""
    triggers: Sequence[CallTrigger] = ()
    """With some, the output is free until one of these tokens comes; the grammar holds from there, token included."""
    reuse: bool = True
    """Whether what the slot already holds may be reused."""
    gather: bool = False
    """Whether ids that came together may be reported together: for callers that only pass them on."""
    logprobs: bool = False
    """Whether the engine is to say how probable each id was."""
    top_logprobs: int = 0
    """How many of the most probable ids it is to name at each place; only with `logprobs`."""
    salt: str | None = None
    """With whom cached ids are shared, on an engine that knows salts: with requests that name the same one."""
    session: bytes = b""
    """The key of its conversation's home (`homes.py`), for an engine that takes sessions; empty: not known."""


@dataclass(frozen=True, slots=True)
class Timings:
    """What the engine did, from its final message. Counts are ids, times are seconds."""

    prompt_n: int
    """Prompt ids that had to be processed."""
    cache_n: int
    """Prompt ids reused from the slot's KV cache."""
    generated_n: int
    prompt_seconds: float
    generate_seconds: float

    def counting(self, processed: int) -> "Timings":
        """The same, with so many of the reused ids counted as processed."""
        return replace(self, prompt_n=self.prompt_n + processed, cache_n=self.cache_n - processed)


@dataclass(frozen=True, slots=True)
class Moved:
    """A slot's state went to a file or came from one: ids and bytes as the engine counts them, and its seconds."""

    ids: int
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Filled:
    """Ids were processed for a slot to hold them: how many, and the engine's seconds."""

    ids: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Generated:
    """Ids that have just been generated, in order. `guessed`: the stream had lost some and several splits fitted."""

    ids: tuple[int, ...]
    guessed: bool = False
    logprobs: tuple[float | None, ...] = ()
    """Of each id the logarithm of its probability before sampling, where that was asked for; None: it was not told."""
    tops: tuple[tuple[tuple[int, float], ...], ...] = ()
    """For each id the most probable ones at its place, with theirs, where they were asked for."""


@dataclass(frozen=True, slots=True)
class GenerationEnd:
    """The last event of a generation that was not cut off."""

    reason: Literal["stop", "length"]
    """`stop`: the model ended its turn. `length`: `max_tokens` or the context was reached."""
    ended_by: int | None
    """The end-of-generation id that closed the turn. It is the last of `Generated`, and not in the KV cache."""
    timings: Timings
    slot: int | None = None
    """The slot that it ran in, as the engine says."""
    told: bool = True
    """Whether the engine itself ended it; False: it went on past `max_tokens`, and the connection was closed."""
    repaired: int = 0
    """Ids that the stream had lost and that were found again from the bytes."""
    ambiguous: int = 0
    """Repairs for which several splits fitted."""
    missed: int = 0
    """Ids that could not be found: the tail of a cut-off character, or bytes that no split of the map gives."""

    @classmethod
    def untold(cls, generated: int) -> Self:
        """The end that an engine did not tell: it has given all that was asked for, and no account of what it cost."""
        timings = Timings(prompt_n=0, cache_n=0, generated_n=generated, prompt_seconds=0.0, generate_seconds=0.0)
        return cls("length", None, timings, told=False)


GenerationEvent = Generated | GenerationEnd


class Provable(Protocol):
    """The part of an engine by which it is found out what it is, all of it answered by one server."""

    async def facts(self) -> EngineFacts:
        """Ask the running engine what it is."""
        ...

    async def tokenize(self, text: str, *, specials: bool) -> list[int]:
        """Ids of `text` by the engine's own tokenizer. `specials`: marker text becomes control ids.

        Only an engine with `plain_tokenize` can leave specials off; any other takes `text` as if they were on.
        """
        ...


@dataclass(frozen=True, slots=True)
class Proven:
    """What an engine has been found to be."""

    facts: EngineFacts
    token_map: TokenMap


Proof = Callable[[Provable], Awaitable[Proven]]
"""Finds out what an engine is; all its questions go over one connection. Raises where it may not be used."""


class Engine(Provable, Protocol):
    """A server that generates, ours or somebody's.

    Every method raises `EngineUnavailable` when the server can't be reached or breaks off, and `EngineRefused` when it
    answers with an error of its own.
    """

    async def apply_template(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Options | None = None,
    ) -> str:
        """The engine's chat template over `messages`, with the generation prompt at the end.

        `options`: what the template is told besides.
        """
        ...

    async def embed(
        self, inputs: Sequence[Sequence[int]], encoding_format: str | None, dimensions: int | None
    ) -> dict[str, Any]:
        """Vectors of texts given as ids, in OpenAI's shape; `EngineRefused` with 501 where the engine has none."""
        ...

    def generate(self, request: GenerateRequest) -> AbstractAsyncContextManager[AsyncIterator[GenerationEvent]]:
        """Generate; leaving the context cancels it, and the engine stops working on it."""
        ...

    async def healthy(self) -> bool:
        """Whether the engine is up and has its model loaded. Never raises."""
        ...


class SlotMover(Protocol):
    """An engine whose caches are slots that can be named: filled, moved to files and back."""

    async def save_slot(self, slot: int, name: str) -> Moved:
        """Write what a slot holds to a new file."""
        ...

    async def restore_slot(self, slot: int, name: str) -> Moved:
        """Have a slot hold what a file does. Raises `EngineRefused`, and the slot is empty."""
        ...

    async def erase_slot(self, slot: int) -> None:
        """Empty a slot."""
        ...

    async def fill_slot(self, slot: int, ids: Sequence[int]) -> Filled:
        """Have a slot hold these ids, and no more. Gives what was processed for it."""
        ...


class SlotKeeper(SlotMover, Protocol):
    """The same, where the slots can be looked at too."""

    async def shows_slots(self) -> bool:
        """Whether the engine can be asked what its slots do."""
        ...

    async def is_at_rest(self, slot: int) -> bool:
        """Whether a slot does nothing."""
        ...
