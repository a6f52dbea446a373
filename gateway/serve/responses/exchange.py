"""One request to `/v1/responses` and its answer: what it continues, the calls that it approves, and how it is shown.

Turns a checked request into a turn of the agent. It knows no HTTP.
"""

import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from hmac import compare_digest
from json import dumps
from typing import Any, Final

from gateway.agent import Agent, AnswerOptions, Conversation, ToolChoice, ToolScope
from gateway.agent.compaction import CompactableAnswer, Compaction
from gateway.agent.events import Emit, Finished
from gateway.agent.turn import NO_MORE
from gateway.engine.interface import Message
from gateway.errors import RequestInvalid
from gateway.proxy.caller import Principal
from gateway.replicas import Replicas
from gateway.serve.generation.tools_and_formats import read_choice, scope_of
from gateway.serve.responses.input_history import Gathered, gather, kept
from gateway.serve.responses.items import ADDITIONAL_TOOLS, COMPACT, EXPIRED, FOUND, ApprovedCalls, MadeCall
from gateway.serve.responses.response_reply import CompactedReply, ResponseOptions, ResponseReply
from gateway.serve.responses.response_request import ResponsesRequest
from gateway.serve.responses.response_store import Responses, Stored
from gateway.serve.responses.response_tools import RequestTools, add_found, add_tools, read_tools
from gateway.serve.responses.transcript import CallToApprove, Transcript, TranscriptReader
from gateway.toolcalls.stream.output_events import CallClosed
from gateway.toolcalls.stream.spelling import spelled

# Text that a client keeps for the gateway: the model's reasoning, where the client keeps the conversation itself.
#
# A seal binds a text to the principal that got it, with a secret that all replicas have. Anything not sealed this way,
# or sealed for somebody else, is not accepted. A seal does not encrypt: its holder has seen the text. Signatures are
# made with a secret of this process.

_MARK: Final = "codec1."
_DIGEST: Final = 16


class Seal:
    """The seals of one process."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """`keys`: the keys of seals; the first one makes new seals."""
        self._keys = keys
        self._key = secrets.token_bytes(32)

    def close(self, owner: str, text: str) -> str:
        """Seal a text for its owner."""
        content = text.encode("utf-8", "surrogatepass")
        return _MARK + urlsafe_b64encode(_digest(self._keys[0], owner, content) + content).decode()

    def open(self, owner: str, sealed: str) -> str | None:
        """The text in a seal that was made for this owner; None for anything else."""
        if not sealed.startswith(_MARK):
            return None
        try:
            data = urlsafe_b64decode(sealed.removeprefix(_MARK))
        except ValueError:
            return None
        content = data[_DIGEST:]
        if not any(compare_digest(data[:_DIGEST], _digest(key, owner, content)) for key in self._keys):
            return None
        return content.decode("utf-8", "surrogatepass")

    def sign(self, owner: str, *texts: str) -> str:
        """A signature that shows that this process gave these texts to this owner: 32 characters."""
        content = dumps([owner, *texts]).encode()
        return blake2b(content, key=self._key, digest_size=_DIGEST, person=b"signature").hexdigest()


def _digest(key: bytes, owner: str, content: bytes) -> bytes:
    name = owner.encode("utf-8", "surrogatepass")
    # Preceded by the name's length, so that no part of the name can be taken for text.
    return blake2b(b"%d:%b%b" % (len(name), name, content), key=key, digest_size=_DIGEST).digest()


@dataclass(frozen=True, slots=True)
class ResponsesState:
    """What this process keeps between requests."""

    store: Responses
    seal: Seal
    approvals: ApprovedCalls
    replicas: Replicas


class ResponseExchange:
    """One request and its answer."""

    def __init__(
        self,
        agent: Agent,
        asked: ResponsesRequest,
        principal: Principal,
        state: ResponsesState,
        stored: Stored,
        most: int,
        *,
        only_summary: bool = False,
    ) -> None:
        """Read the request. Raises `RequestInvalid`.

        Args:
            stored: has the responses and items that it refers to.
            most: bytes that these items may have.
            only_summary: whether the answer is a summary of the conversation, whatever the request says.
        """
        self._agent = agent
        self._asked = asked
        self._principal = principal
        self._state = state
        self._name = partial(state.replicas.name, "response", principal.name)
        offers = agent.offers
        servers = partial(offers.servers, principal)
        self._items: Gathered = gather(asked, stored, principal.name, most)
        self._tools: RequestTools = read_tools(
            *(asked.tools, offers.entries(principal), servers, offers.approval_rule()),
            has=self._has,
        )
        add_tools(self._tools, self._items.tools_in(ADDITIONAL_TOOLS))
        add_found(self._tools, self._items.tools_in(FOUND))
        if (summary := self._items.summary) is not None:
            add_found(self._tools, summary.tools, summary.found)
        if asked.gateway_tools == "none" and self._tools.servers is not None:
            raise RequestInvalid(
                "gateway_tools: 'none' excludes the gateway's servers, but tools name some: leave out one of the two",
                param="gateway_tools",
            )
        self._scope: ToolScope = scope_of(asked.gateway_tools, self._tools.servers)
        self._choice: ToolChoice = read_choice(asked.tool_choice, self._tools.names_in)
        unseal, sign = partial(state.seal.open, principal.name), partial(state.seal.sign, principal.name)
        self._read: Transcript = TranscriptReader(self._tools, unseal, sign).read(self._items.placed)
        self._only_summary = only_summary
        triggered = bool(self._items.own) and self._items.own[-1][1]["type"] == COMPACT
        self._compaction = Compaction(ends=True) if only_summary or triggered else asked.compaction
        self._answer: CompactableAnswer
        self._made: list[MadeCall] = []
        self._called = 0
        """How many calls were made before the answer."""

    def _has(self, name: str) -> bool:
        return self.conversation.has(name)

    @property
    def conversation(self) -> Conversation:
        """The conversation that is answered, once it is open."""
        return self._answer.conversation

    @property
    def approves(self) -> bool:
        """Whether approved calls have to be made before the answer begins."""
        return bool(self._read.approved)

    async def open(self) -> None:
        """Make the calls that were approved, and begin the conversation. Raises `GatewayError`."""
        if self.approves:
            # Opened once before the calls as well, so that a request that is refused makes none.
            await self._begin()
            self._made = await self._make_approved(self._read.approved)
        await self._begin()

    async def _begin(self) -> None:
        asked, messages = self._asked, self._read.messages
        if asked.instructions:
            messages = [{"role": "system", "content": asked.instructions}, *messages]
        self._answer = CompactableAnswer(self._agent, self._open, messages, self._choice, asked=self._compaction)
        await self._answer.open()

    async def _open(self, messages: Sequence[Message], choice: ToolChoice) -> Conversation:
        asked = self._asked
        return await self._agent.open(
            messages,
            choice=choice,
            client_tools=self._tools.specs,
            deferral=self._tools.deferral,
            gateway_tools=self._scope,
            principal=self._principal,
            options=asked.template_options,
            model=asked.model,
        )

    @property
    def _calls_left(self) -> int | None:
        """How many calls may still be made for this request; None: any number."""
        most = self._asked.max_tool_calls
        return None if most is None else max(most - self._called, 0)

    async def _make_approved(self, approved: list[CallToApprove]) -> list[MadeCall]:
        """Make the approved calls that were not made before; return all results, and put them into their messages."""
        approvals, owner = self._state.approvals, self._principal.name
        fresh = [each for each in approved if approvals.is_open(owner, each.item)][: self._calls_left]
        for each in fresh:
            # Before anything is awaited: the same approval may come several times at once.
            approvals.begin(owner, each.item)
        calls = [CallClosed(n, each.call_id, each.name, each.item["arguments"], ()) for n, each in enumerate(fresh)]
        outcomes = await self._agent.call(calls, self.conversation, self._scope)
        self._called = len(fresh)
        for each, (text, finished) in zip(fresh, outcomes, strict=True):
            approvals.note(MadeCall(each.item, text, finished.is_error))
        made: list[MadeCall] = []
        for each in approved:
            no_call = f"error: {NO_MORE}" if approvals.is_open(owner, each.item) else EXPIRED
            made.append(approvals.made(each.item) or MadeCall(each.item, no_call, is_error=True))
            if each.place is not None:
                self._read.messages[each.place]["content"] = made[-1].text
        return made

    async def make(self, emit: Emit) -> Finished:
        """Make the answer."""
        asked = self._asked
        options = AnswerOptions(
            choice=self._choice,
            max_tokens=asked.max_output_tokens,
            sampling=asked.sampling,
            parallel=asked.parallel_tool_calls,
            form=asked.form,
            show_calls=False,
            tell_calls=True,
            asks=lambda call: self._tools.to_approve(call) is not None,
            max_calls=self._calls_left,
            logprobs=asked.logprobs,
        )
        return await self._answer.answer(options, emit)

    def reply(self) -> ResponseReply:
        """Start the reply that shows the answer."""
        asked, items, state = self._asked, self._items, self._state
        owner = self._principal.name

        def keep(response: dict[str, Any]) -> None:
            state.store.put(kept(response, asked.previous_response_id, items, owner, self._name))

        options = ResponseOptions(
            now=_now,
            summarized=asked.summarized,
            seal=partial(state.seal.close, owner) if asked.sealed else None,
            name=self._name,
            sign=partial(state.seal.sign, owner),
            ask=partial(state.approvals.ask, owner),
            spell=None if asked.logprobs is None else partial(spelled, self.conversation.ready.token_map),
            keep=keep if asked.store and not self._only_summary else _nothing,
        )
        unused = asked.without_effect(self.conversation.ready.template.options)
        ignored = dict.fromkeys((*unused, *self._tools.ignored, *items.left_out.names, *self._read.ignored))
        lists = [label for label in self._tools.servers or () if label not in self._read.listed]
        return ResponseReply(
            self._head(), self._tools, options, ignored=list(ignored)[:64], lists=lists, made=self._made
        )

    def compacted_reply(self) -> CompactedReply:
        """Start the reply that shows only the summary, behind the user's messages."""
        questions = [item for _, item in self._items.placed if item.get("role") == "user"]
        return CompactedReply(self.reply(), [{"id": f"msg_{self._name()}", **item} for item in questions])

    def _head(self) -> dict[str, Any]:
        """The response without what is only known at its end."""
        asked = self._asked
        summary = asked.reasoning.summary or asked.reasoning.generate_summary
        nothing = dict.fromkeys(("completed_at", "error", "incomplete_details", "usage"))
        return {
            "id": f"resp_{self._name()}",
            "object": "response",
            "created_at": _now(),
            "status": "in_progress",
            "model": self.conversation.ready.facts.model,
            **nothing,
            "background": False,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "max_tool_calls": asked.max_tool_calls,
            "metadata": asked.metadata or {},
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": asked.previous_response_id,
            "reasoning": {"effort": asked.reasoning.effort, "summary": summary},
            "service_tier": "default",
            "store": asked.store,
            "temperature": asked.temperature,
            "text": asked.shown_text,
            "tool_choice": asked.tool_choice,
            "tools": self._tools.shown,
            "top_logprobs": asked.top_logprobs,
            "top_p": asked.top_p,
            "truncation": "disabled",
        }


def _now() -> int:
    return int(time.time())  # noqa: TID251 - the API wants a date


def _nothing(_response: dict[str, Any]) -> None:
    """Do nothing: the client asked not to store the response."""
