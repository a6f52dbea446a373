"""From items to messages: the items of one answer of the model become one message again.

Consecutive reasoning, texts and calls are one answer, and so are calls of one turn with results between them. Calls
that the gateway ran are kept beside the message, since the memory restores them with their original ids; a call that
the client approved is a call with a result. It reads items in their canonical form (`items.py`).
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.context.history.client_messages import EchoedAnswer, Said, checked_message, free_form_arguments
from gateway.context.history.shortening import add_message, after_summary
from gateway.context.memory import FOUND_TOOLS
from gateway.serve.responses.items import (
    APPROVAL,
    Item,
    ItemPlace,
    Sign,
    approval_request_id,
    name_in,
    unpacked_summary,
)
from gateway.serve.responses.response_tools import SEARCH, RequestTools, names_of
from gateway.toolcalls.stream.output_events import is_of_one_turn

_THOUGHT: Final = re.compile(r"<think>\n(.*)\n</think>", re.DOTALL)
"""How pydantic-ai sends back reasoning that came from another API."""
_APPROVAL_ID: Final = re.compile(rf"{APPROVAL}(?:[\w-]+\.[0-9a-f]{{32}}_)?(.*)", re.ASCII | re.DOTALL)
"""The id of an approval request: a name, a signature, and the id of the call."""
_MOST_APPROVED: Final = 64
"""Maximum number of approved calls of one request: all are made at the same time."""
_LOST: Final = "error: the result of this call is no longer known"


@dataclass(slots=True)
class CallToApprove:
    """A call that needs approval, and what became of it."""

    call_id: str
    name: str
    """The tool's name, as the model knows it."""
    item: Item
    place: int | None = None
    """Position of the message that holds the result; None until the client has decided."""
    known: bool = False
    """Whether the result is known: also where the client refused the call."""


@dataclass(slots=True)
class Transcript:
    """The messages of a request's items, and what else they say."""

    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    approved: list[CallToApprove] = field(default_factory=list[CallToApprove])
    """Approved calls that are still to be made; their results go into their messages."""
    listed: set[str] = field(default_factory=set[str])
    """Servers whose tools the client has been shown (`mcp_list_tools`)."""
    ignored: list[str] = field(default_factory=list[str])


class TranscriptReader:
    """Reads one request's items, in order."""

    def __init__(self, tools: RequestTools, unseal: Callable[[str], str | None], sign: Sign) -> None:
        """`unseal`: see `Seal.open`; `sign`: see `approval_request_id`."""
        self._tools = tools
        self._unseal = unseal
        self._sign = sign
        self._answer: EchoedAnswer | None = None
        """The answer that is being read."""
        self._before: EchoedAnswer | None = None
        """The answer before it, as long as only results have followed."""
        self._asked: dict[str, CallToApprove] = {}
        self._searched: Item | None = None
        """The last search for tools."""
        self._places: list[str] = []
        self._read = Transcript()

    def read(self, items: Iterable[tuple[str, Item]]) -> Transcript:
        """Read all items, each with its place in the request. Raises `RequestInvalid` that names the place."""
        for where, item in items:
            self._add(item, where)
        self._end_answer()
        if self._asked:
            self._settle()
        for message, where in zip(self._read.messages, self._places, strict=True):
            message.update(checked_message(message, where))
        return self._read

    def _settle(self) -> None:
        """Approve the calls whose results are not known yet; those before the last answer are lost."""
        messages = self._read.messages
        last = max((place for place, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
        for asked in self._asked.values():
            if asked.place is None or asked.known:
                continue
            if asked.place > last:
                # Approved since the last answer.
                self._approve(asked, ItemPlace(self._places[asked.place]))
            else:
                messages[asked.place]["content"] = _LOST

    def _approve(self, asked: CallToApprove, where: ItemPlace) -> None:
        asked_as = asked.item["id"]
        if asked_as != approval_request_id(self._sign, asked.call_id, name_in(asked_as), asked.item):
            words = (
                "does not match any approval request that this gateway has made since it started: ask the model again"
            )
            raise where.error(words, "approval_request_id")
        if len(self._read.approved) == _MOST_APPROVED:
            raise where.error(f"approves more than {_MOST_APPROVED} calls at once: approve fewer")
        self._read.approved.append(asked)

    def _add(self, item: Item, where: str) -> None:
        match item["type"]:
            case "message":
                self._message(item, where)
            case "reasoning":
                self._say("reasoning_content", self._reasoning(item), where)
            case "function_call" | "custom_tool_call":
                self._called(item, where)
            case "function_call_output" | "custom_tool_call_output":
                output = item["output"]
                text = output if isinstance(output, str) else "\n".join(part["text"] for part in output)
                self._result(item["call_id"], text, where)
            case "mcp_list_tools":
                self._read.listed.add(item["server_label"])
            case "additional_tools" | "compaction_trigger":
                # They are read with the fields of the request.
                pass
            case "compaction":
                self._sum_up(item, where)
            case "tool_search_call":
                self._search(item, where)
            case "tool_search_output":
                self._found(item, where)
            case _:
                self._mcp(item, where)

    def _message(self, item: Item, where: str) -> None:
        texts = [part["text"] for part in item["content"]]
        if item["role"] != "assistant":
            self._put({"role": item["role"], "content": "\n".join(texts)}, where)
            return
        text = "".join(texts)
        thought = _THOUGHT.fullmatch(text)
        if thought is None:
            self._say("content", text, where)
        else:
            self._say("reasoning_content", thought[1], where)

    def _reasoning(self, item: Item) -> str:
        if content := item.get("content"):
            return "".join(part["text"] for part in content)
        if summary := item["summary"]:
            return "\n\n".join(part["text"] for part in summary)
        sealed = item.get("encrypted_content")
        text = None if sealed is None else self._unseal(sealed)
        if sealed is not None and text is None:
            self._read.ignored.append("input.reasoning.encrypted_content")
        return text or ""

    def _sum_up(self, item: Item, where: str) -> None:
        """A summary stands for all that precedes it; one by another server can't be read."""
        summary = unpacked_summary(item["encrypted_content"])
        if summary is None:
            self._read.ignored.append("input.compaction.encrypted_content")
            return
        self._end_answer()
        self._before, self._searched, self._asked = None, None, {}
        left = after_summary(self._read.messages, summary.text, summary.found, summary.system)
        self._read.messages[:] = left
        self._places = [where] * len(left)

    def _called(self, item: Item, where: str) -> None:
        name = self._tools.model_name(item["name"], item.get("namespace"))
        arguments = item["arguments"] if "arguments" in item else free_form_arguments(item["input"])
        self._call(item["call_id"], name, arguments, where)

    def _search(self, item: Item, where: str) -> None:
        self._searched = item
        if item["execution"] == "client":
            self._call(item["call_id"], SEARCH, item["arguments"], where)

    def _found(self, item: Item, where: str) -> None:
        names, searched = names_of(item["tools"]), self._searched
        if item["execution"] == "client":
            result = {"role": "tool", "tool_call_id": item["call_id"], "content": "\n".join(names)}
            self._put(result | {FOUND_TOOLS: tuple(names)}, where)
        elif searched is not None:
            call_id = searched.get("id") or f"tsc_{len(self._places)}"
            self._open_answer(where).ran(call_id, SEARCH, searched["arguments"], "\n".join(names), names)

    def _mcp(self, item: Item, where: str) -> None:
        match item["type"]:
            case "mcp_approval_request":
                found = _APPROVAL_ID.fullmatch(item["id"])
                call_id = item["id"] if found is None else found[1]
                name = self._name_of(item)
                self._asked[item["id"]] = CallToApprove(call_id, name, item)
                self._call(call_id, name, item["arguments"], where)
            case "mcp_approval_response":
                self._approval(item, where)
            case _:
                self._ran(item, where)

    def _name_of(self, item: Item) -> str:
        server, tool = item["server_label"], item["name"]
        # With a slash, which no name contains, a missing tool can't be taken for another server's.
        return self._tools.public(server, tool) or f"{server}/{tool}"

    def _approval(self, item: Item, where: str) -> None:
        asked = self._asked.get(item["approval_request_id"])
        if asked is None or asked.place is not None:
            words = "is not the id of an approval request of this conversation that is still unanswered"
            raise ItemPlace(where).error(words, "approval_request_id")
        reason = f": {item['reason']}" if item.get("reason") else ""
        refused = f"error: the user did not approve this call{reason}"
        asked.place, asked.known = len(self._read.messages), not item["approve"]
        self._result(asked.call_id, refused, where)

    def _ran(self, item: Item, where: str) -> None:
        """Read a call that the gateway ran: as part of this answer, or as the result of a call that was approved."""
        asked = self._asked.get(item.get("approval_request_id", ""))
        error: Item = item.get("error") or {"message": ""}
        result = item.get("output") or error["message"]
        if asked is None:
            call_id = item.get("id") or f"mcp_{len(self._places)}"
            self._open_answer(where).ran(call_id, self._name_of(item), item["arguments"], result)
        elif asked.place is not None:
            asked.known = True
            self._read.messages[asked.place]["content"] = result

    def _open_answer(self, where: str) -> EchoedAnswer:
        if self._answer is None:
            answer = EchoedAnswer(where)
            self._put(answer.message, where)
            self._answer = answer
        return self._answer

    def _say(self, field: Said, text: str, where: str) -> None:
        self._open_answer(where).say(field, text)

    def _end_answer(self) -> None:
        if self._answer is not None:
            self._answer.end()
            self._before, self._answer = self._answer, None

    def _call(self, call_id: str, name: str, arguments: str, where: str) -> None:
        before = self._before
        if self._answer is None and before is not None and is_of_one_turn(call_id, before.last_call):
            before.call(call_id, name, arguments)
            before.end()
        else:
            self._open_answer(where).call(call_id, name, arguments)

    def _result(self, call_id: str, text: str, where: str) -> None:
        self._put({"role": "tool", "tool_call_id": call_id, "content": text}, where)

    def _put(self, message: dict[str, Any], where: str) -> None:
        self._end_answer()
        if message["role"] != "tool":
            self._before = None
        if add_message(self._read.messages, message):
            self._places.append(where)
