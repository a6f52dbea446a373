"""What the packages above ask of an engine of any kind: ids in, ids out.

An engine turns prompt ids into a stream of generated ids and keeps what it has computed. It does not know
conversations, tools or MCP. Engines state how they differ (`Capabilities`), so no code asks which kind it has.
`engine/wire/llama_cpp_client.py` and `engine/wire/vllm_client.py` speak to real servers over HTTP;
`embedded/engine_process.py` starts a llama.cpp server of our own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol, Self

from gateway.toolcalls.formats.format import CallTrigger
from leaf_sdk.vocab import TokenMap

Message = Mapping[str, Any]
"""A chat message in OpenAI's format: `role`, `content` and the role's other fields."""
Options = Mapping[str, str | int | float | bool]
"""Variables that are passed to a chat template besides the messages."""


Rewind = Literal["anywhere", "window", "checkpoints"]
"""Where the cache of a loaded model can be cut without processing again what stands before the cut: behind any token
(dense models); at checkpoints and near its end (sliding windows); at checkpoints only (recurrent layers)."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a kind of engine can do. The defaults describe a llama.cpp server with a dense model."""

    lazy_grammar: bool = True
    """Whether a grammar can take effect at a token instead of the first id. It names tokens by their ids (`<[id]>`)."""
    salts: bool = False
    """Whether a request may name a salt, so that it shares cached ids only with requests of the same salt."""
    sessions: bool = False
    """Whether a request may name its conversation, so that a router before several servers finds its cache."""
    retention: bool = False
    """Whether a request may say how long what it leaves in the cache will be needed (`Retention`)."""
    reuse_block: int = 1
    """Ids per block of reuse: of a continued prompt, fewer than this many may be processed again."""
    plain_tokenize: bool = True
    """Whether its tokenizer can treat the text of a special token as ordinary text."""
    shows_template: bool = True
    """Whether it shows its chat template's text; if not, `EngineFacts.chat_template` is a rendering by it."""
    rewind: Rewind = "anywhere"
    """Where a slot's cache can be cut, as probed at its start (`slots/engine_slots.py`), if its slots are ours."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a running engine reports about itself."""

    model: str
    """Name shown to clients."""
    model_path: str | None
    chat_template: str
    supports_tools: bool
    """False: the template has no place for tool definitions, so they go into a system preamble."""
    vocabulary: int | None
    """Number of ids; None: the engine does not report it."""
    context: int
    """Ids that one slot can hold."""
    slots: int
    bos: tuple[int, ...]
    """Ids that the engine puts before a text prompt; empty if it adds none."""
    start_marker: str | None = None
    """What the process drew at random at its start: a different one means another process. None: it does not say."""
    can: Capabilities = Capabilities()
    supports_calls: bool = False
    """Whether the template writes calls that a message holds; one that takes tools does."""
    api: Literal["llama_cpp", "vllm"] = "llama_cpp"
    """Which API it speaks, for people and in spans; what it can do is in `can`."""


PROMPT_STEP: Final = 600.0
"""Seconds that one step of an engine with a prompt in it may take: llama.cpp processes up to 2,048 tokens before it
reports any progress, and a slow machine three or four a second."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What a busy engine reports of its work."""

    figures: tuple[object, ...]
    """Different whenever it has made progress with any request."""
    prefills: bool = False
    """Whether it may be processing a prompt, during which no figure changes for long."""


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
    """Ids and what is added to their logits; never special ids, nor ids that the map does not have."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What follows a generation: it tells a router how long what the generation leaves in the cache will be needed."""

    conversation: str
    """The conversation's own random name."""
    continues: bool
    """Whether the model may call a tool now, so that a generation with the result may follow."""
    seconds: float | None = None
    """How long the tools usually take; None: not known."""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A generation. `prompt` is the whole context as ids; the engine reuses what its slot already holds."""

    prompt: Sequence[int]
    slot: int | None
    """The slot to use, only on an engine that is ours alone and if the slot is known to be at rest. None: any."""
    max_tokens: int
    sampling: Sampling = Sampling()
    grammar: str | None = None
    """GBNF that the output must match."""
    triggers: Sequence[CallTrigger] = ()
    """If given, the output is free until one of these tokens; the grammar holds from that token on, included."""
    reuse: bool = True
    """Whether what the slot already holds may be reused."""
    gather: bool = False
    """Whether ids that arrived together may be reported together, for callers that only pass them on."""
    logprobs: bool = False
    """Whether the engine is to report how probable each id was."""
    top_logprobs: int = 0
    """How many of the most probable ids it is to report at each place; only with `logprobs`."""
    salt: str | None = None
    """Cached ids are shared only with requests of the same salt; only for an engine that supports salts."""
    session: bytes = b""
    """The key of its conversation (`pool/engine_choice.py`), for an engine that has sessions; empty: not known."""
    retention: Retention | None = None
    """What follows it, for an engine that supports retention; None: not known."""
    trace: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers with the trace context of the request; empty: it is not traced."""


@dataclass(frozen=True, slots=True)
class Timings:
    """What the engine did, from its final message. Counts are in ids, times in seconds."""

    prompt_n: int
    """Prompt ids that had to be processed."""
    cache_n: int
    """Prompt ids reused from the slot's KV cache."""
    generated_n: int
    prompt_seconds: float
    generate_seconds: float

    def within(self, prompt: int) -> "Timings":
        """The same, with no more ids than the prompt has and no negative count, whatever the engine reported."""
        cached = min(max(self.cache_n, 0), prompt)
        if cached == self.cache_n and 0 <= self.prompt_n <= prompt - cached:
            return self
        return replace(self, prompt_n=prompt - cached, cache_n=cached)

    def counting(self, processed: int) -> "Timings":
        """The same, with this many of the reused ids counted as processed."""
        return replace(self, prompt_n=self.prompt_n + processed, cache_n=self.cache_n - processed)


@dataclass(frozen=True, slots=True)
class Moved:
    """A save or restore of a slot's state: ids and bytes as the engine counts them, and the seconds it took."""

    ids: int
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Filled:
    """How many ids were processed so that a slot holds what it should, and the seconds the engine took."""

    ids: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Generated:
    """Newly generated ids, in order. `guessed`: whether the stream lost some, and several splits fitted."""

    ids: tuple[int, ...]
    guessed: bool = False
    logprobs: tuple[float | None, ...] = ()
    """The logarithm of each id's probability before sampling, if asked for; None: it was not reported."""
    tops: tuple[tuple[tuple[int, float], ...], ...] = ()
    """For each id, the most probable ids at its place and their log-probabilities, if asked for."""


@dataclass(frozen=True, slots=True)
class GenerationEnd:
    """The last event of a generation that was not cut off."""

    reason: Literal["stop", "length"]
    """`stop`: the model ended its turn. `length`: `max_tokens` or the context was reached."""
    ended_by: int | None
    """The end-of-generation id that closed the turn. It is the last of `Generated`, and not in the KV cache."""
    timings: Timings
    slot: int | None = None
    """The slot in which it ran, as reported by the engine."""
    reported: bool = True
    """Whether the engine reported the end and its timings; False: it sent the whole answer, but not that."""
    tells_cache: bool = True
    """Whether it said how much of the prompt it had cached; False: the timings count all of it as processed."""
    repaired: int = 0
    """Ids that the stream lost and that were recovered from the bytes."""
    ambiguous: int = 0
    """Repairs for which several splits fitted."""
    missed: int = 0
    """Ids that could not be recovered: the tail of a cut-off character, or bytes that no split by the map gives."""

    padded: int = 0
    """Ids that the map does not have, and that have no text: those beyond the tokenizer's in a padded vocabulary."""

    @property
    def known(self) -> Timings | None:
        """The timings, if the engine reported them whole."""
        return self.timings if self.reported and self.tells_cache else None

    @classmethod
    def unreported(cls, generated: int) -> Self:
        """An end that the engine did not report: it sent all the ids that were asked for, but no timings."""
        timings = Timings(prompt_n=0, cache_n=0, generated_n=generated, prompt_seconds=0.0, generate_seconds=0.0)
        return cls("length", None, timings, reported=False)


GenerationEvent = Generated | GenerationEnd


class Provable(Protocol):
    """The questions that show what an engine is. All of them are answered by one server."""

    async def facts(self) -> EngineFacts:
        """Ask the running engine about itself."""
        ...

    async def start_marker(self) -> str | None:
        """Ask only for that fact: who reports the same is the same process, of which the others were asked."""
        ...

    async def tokenize(self, text: str, *, specials: bool) -> list[int]:
        """Ids of `text` by the engine's own tokenizer. `specials`: whether marker text becomes control ids.

        Only an engine with `plain_tokenize` can leave specials off; any other always reads them.
        """
        ...

    async def tokenize_each(self, texts: Sequence[str], *, specials: bool) -> list[list[int]]:
        """Ids of each text on its own, in one request if the engine can do that: some end a connection after many."""
        ...


@dataclass(frozen=True, slots=True)
class Proven:
    """What a proof has found out about an engine."""

    facts: EngineFacts
    token_map: TokenMap


Proof = Callable[[Provable], Awaitable[Proven]]
"""Finds out what an engine is, with all its questions on one connection. Raises if the engine may not be used."""


class Engine(Provable, Protocol):
    """A server that generates, started by us or by somebody else.

    Every method raises `EngineUnavailable` when the server can't be reached or breaks off, and `EngineRefused` when it
    answers with an error of its own.
    """

    async def apply_template(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Options | None = None,
    ) -> str:
        """Render `messages` with the engine's chat template, with the generation prompt at the end.

        `options`: variables for the template.
        """
        ...

    async def embed(
        self, inputs: Sequence[Sequence[int]], encoding_format: str | None, dimensions: int | None
    ) -> dict[str, Any]:
        """Embeddings of texts given as ids, in OpenAI's format; `EngineRefused` with 501 if the engine has none."""
        ...

    def generate(self, request: GenerateRequest) -> AbstractAsyncContextManager[AsyncIterator[GenerationEvent]]:
        """Generate. Leaving the context cancels the generation, and the engine stops working on it."""
        ...

    async def healthy(self, seconds: float) -> bool:
        """Whether the engine is up and has its model loaded, as it answers within so many seconds. Never raises."""
        ...


class SlotMover(Protocol):
    """An engine with slots that can be addressed: filled, saved to files and restored."""

    async def save_slot(self, slot: int, name: str) -> Moved:
        """Write what a slot holds to a new file."""
        ...

    async def restore_slot(self, slot: int, name: str) -> Moved:
        """Load a file into a slot. Raises `EngineRefused`, and the slot is then empty."""
        ...

    async def erase_slot(self, slot: int) -> None:
        """Empty a slot."""
        ...

    async def fill_slot(self, slot: int, ids: Sequence[int]) -> Filled:
        """Make a slot hold exactly these ids. Returns what was processed for it."""
        ...


class SlotKeeper(SlotMover, Protocol):
    """An engine with slots that can also be inspected."""

    async def shows_slots(self) -> bool:
        """Whether the engine shows what its slots are doing."""
        ...

    async def is_at_rest(self, slot: int) -> bool:
        """Whether a slot is at rest: it does nothing."""
        ...


def shared_prefix(held: Sequence[object], prompt: Sequence[object]) -> int:
    """Length of the common prefix, in ids or characters. A binary search, since slices compare at C speed."""
    low, high = 0, min(len(held), len(prompt))
    while low < high:
        middle = (low + high + 1) // 2
        if held[low:middle] == prompt[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
