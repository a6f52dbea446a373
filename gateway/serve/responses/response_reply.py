"""Agent events in the shape of the Responses API: typed events as they arrive, and one whole response.

The reply is given each event of the agent once and returns the events for it; the response that ends the stream, or is
the whole answer, is made of the same items. What OpenAI's shape has no place for goes under the additional key `codec`.
Pure: it knows no HTTP and no engine.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from secrets import token_urlsafe
from typing import Any, Final, Literal, TypeVar

from gateway.agent.events import AgentEvent, Compacted, ContentSampled, Finished, GenerationFinished, ToolFinished
from gateway.context.memory import RequestFigures
from gateway.escape import cut_text
from gateway.serve.generation.codec_field import Account, Spell, logprob_entry
from gateway.serve.http.error_answers import error_answer
from gateway.serve.responses.items import Item, MadeCall, NewName, Sign, Summary, approval_request_id, packed_summary
from gateway.serve.responses.output import (
    ApprovalWriter,
    CallWriter,
    CustomWriter,
    FoundWriter,
    ListWriter,
    ResponseEvent,
    RunWriter,
    SearchWriter,
    SummaryWriter,
    TextWriter,
)
from gateway.serve.responses.response_tools import RequestTools
from gateway.toolcalls.stream.output_events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Reasoning,
)

_RESULT_TEXT: Final = 100_000
"""Maximum characters of a tool's result that its item shows. What the model gets has its own limit, in ids."""

TextKind = Literal["message", "summary", "thought"]
_Call = CallWriter | CustomWriter | RunWriter | SearchWriter
_Writer = TextWriter | _Call | ApprovalWriter | ListWriter | FoundWriter | SummaryWriter
W = TypeVar("W", bound=_Writer)


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """How one answer is shown."""

    now: Callable[[], int]
    """Returns the time, in seconds since the epoch."""
    summarized: bool = False
    """Whether reasoning is shown as a summary."""
    seal: Callable[[str], str] | None = None
    """Seals reasoning, where the client keeps the conversation itself; None elsewhere."""
    name: NewName = token_urlsafe
    """Makes names for its items."""
    sign: Sign = lambda name, call_id, server, tool, arguments: ""
    """Signs approval requests (`approval_request_id`)."""
    ask: Callable[[str], None] = lambda approval_request_id: None
    """Called with the id of each approval request before the client gets it."""
    spell: Spell | None = None
    """Returns an id's bytes; None unless the client wants log probabilities."""
    keep: Callable[[dict[str, Any]], None] = lambda response: None
    """Called with the whole response before the client gets it."""


class ResponseReply:
    """The reply to one request."""

    def __init__(
        self,
        head: dict[str, Any],
        tools: RequestTools,
        options: ResponseOptions,
        *,
        ignored: Sequence[str] = (),
        lists: Sequence[str] = (),
        made: Sequence[MadeCall] = (),
    ) -> None:
        """`head`: the response without what is known only at its end; `lists`: servers whose tools are listed first."""
        self._head = head
        self._tools = tools
        self._options = options
        self._account = Account(ignored)
        self._numbers: Iterator[int] = count()
        self._written: list[_Writer] = []
        self._text: TextWriter | None = None
        self._held = {"message": "", "thought": ""}
        self._logprobs: list[Item] = []
        """Ids of the message, with log probabilities, that have not been sent yet."""
        self._calls: dict[int, _Call] = {}
        self._unknown: dict[int, str] = {}
        """Ids of calls of which it is not known yet whether they have to be approved, by their indexes."""
        self._runs: dict[str, RunWriter] = {}
        self._searches: dict[str, SearchWriter] = {}
        """Searches for tools that the gateway runs, by the ids of their calls."""
        self._summary: Compacted | None = None
        self._response: dict[str, Any] | None = None
        # Numbered now: events may be fed before `begin` is called, and the beginning has the first numbers.
        self._beginning = self._begin(lists, made)

    def begin(self) -> list[ResponseEvent]:
        """Events that come before those of the agent's first event."""
        return self._beginning

    def feed(self, event: AgentEvent) -> list[ResponseEvent]:
        """Events to send for an event of the agent."""
        return self._numbered(self._told(event))

    def completion(self) -> ResponseEvent:
        """The whole response. Call it after feeding `Finished`."""
        if self._response is None:
            raise RuntimeError("completion() before the answer was finished")
        return self._response

    def fail(self, error: Exception) -> list[ResponseEvent]:
        """The event that ends a stream after an error."""
        said = error_answer(error)[1]["error"]
        failure = {"code": "server_error", "message": said["message"]}
        response = {**self._now("failed"), "error": failure, "codec": self._account.codec()}
        return self._numbered([{"type": "response.failed", "response": response}])

    def ping(self) -> list[ResponseEvent]:
        """The response as it is. None within an item: clients take its output for all there is, and lose the rest.

        OpenAI's own server sends an event of the type `keepalive`, at which clients that know only typed events end.
        """
        if not all(each.done for each in self._written):
            return []
        return self._numbered([{"type": "response.in_progress", "response": self._now("in_progress")}])

    def _begin(self, lists: Sequence[str], made: Sequence[MadeCall]) -> list[ResponseEvent]:
        response = self._now("in_progress")
        events: list[ResponseEvent] = [
            {"type": f"response.{kind}", "response": response} for kind in ("created", "in_progress")
        ]
        for server in lists:
            events += self._new(ListWriter(len(self._written), server, self._tools.listed(server))).whole()
        for call in made:
            asked = call.approval_request
            run = self._new(RunWriter(len(self._written), asked["server_label"], asked["name"], asked["id"]))
            events += [*run.begin(), *run.add(asked["arguments"]), *run.end(asked["arguments"])]
            events += run.finish(call.text, is_error=call.is_error)
        return self._numbered(events)

    def _told(self, event: AgentEvent) -> list[ResponseEvent]:
        match event:
            case Content(text):
                return self._say("message", text)
            case Reasoning(text):
                return self._say("thought", text)
            case CallStarted(index, call_id, name):
                return [*self._end_text(), *self._start(index, call_id, name)]
            case CallArguments(index, fragment):
                return [] if index in self._unknown else self._calls[index].add(fragment)
            case CallClosed(index=index, arguments=arguments):
                return self._decide(event) if index in self._unknown else self._calls[index].end(arguments)
            case ToolFinished():
                return self._ran(event)
            case Compacted():
                return self._sum_up(event)
            case Finished():
                return self._finish(event)
            case _:
                self._note(event)
        return []

    def _note(self, event: AgentEvent) -> None:
        """Keep what is shown with later events, or at the end."""
        if isinstance(event, GenerationFinished | RequestFigures | Diagnostic):
            self._account.add(event)
        elif isinstance(event, ContentSampled) and (spell := self._options.spell) is not None:
            self._logprobs += [logprob_entry(token, spell) for token in event.tokens]

    def _sum_up(self, event: Compacted) -> list[ResponseEvent]:
        self._account.add(event)
        self._summary = event
        if not event.text:
            return []
        given = self._head["instructions"]
        system = [words for words in event.system if words != given]
        # A client may drop the items that brought these.
        brought = self._tools.found(self._tools.read_in_items(event.found))
        packed = packed_summary(Summary(event.text, [*event.found], system, brought))
        return self._new(SummaryWriter(len(self._written), packed)).whole()

    def _say(self, kind: Literal["message", "thought"], text: str) -> list[ResponseEvent]:
        """Continue a text, or begin one at its first non-blank character: leading blanks are held back until then."""
        told: TextKind = "summary" if kind == "thought" and self._options.summarized else kind
        if self._text is not None and self._text.kind == told:
            return self._text.add(text, self._take_logprobs(kind))
        self._held[kind] += text
        if not self._held[kind].strip():
            return []
        ended, text = self._end_text(), self._held[kind]
        self._held[kind] = ""
        self._text = self._new(TextWriter(len(self._written), told))
        return [*ended, *self._text.begin(), *self._text.add(text, self._take_logprobs(kind))]

    def _take_logprobs(self, kind: Literal["message", "thought"]) -> list[Item]:
        if kind == "thought":
            return []
        logprobs, self._logprobs = self._logprobs, []
        return logprobs

    def _end_text(self, *, whole: bool = True) -> list[ResponseEvent]:
        if (text := self._text) is None:
            return []
        self._text = None
        return text.end(whole=whole, seal=self._options.seal)

    def _start(self, index: int, call_id: str, name: str) -> list[ResponseEvent]:
        tool, place = self._tools.client.get(name), len(self._written)
        if tool is None and self._tools.may_ask(name):
            # It is shown when it is complete: then its arguments say what has to be approved, if anything.
            self._unknown[index] = call_id
            return []
        search = self._tools.search
        if tool is None and search is not None and name == search.spec.name:
            writer = self._searches[call_id] = SearchWriter(place, None)
        elif tool is None:
            writer = self._runs[call_id] = RunWriter(place, *self._tools.origin(name))
        elif tool.kind == "search":
            writer = SearchWriter(place, call_id)
        elif tool.kind == "custom":
            writer = CustomWriter(place, call_id, tool)
        else:
            writer = CallWriter(place, call_id, tool)
        self._calls[index] = self._new(writer)
        return writer.begin()

    def _decide(self, call: CallClosed) -> list[ResponseEvent]:
        """Show a complete call: as an approval request, or as a call that the gateway runs."""
        call_id, unapproved = self._unknown.pop(call.index), self._tools.to_approve(call)
        if unapproved is not None:
            return self._new(ApprovalWriter(len(self._written), unapproved, partial(self._ask, call_id))).whole()
        run = self._runs[call_id] = self._new(RunWriter(len(self._written), *self._tools.origin(call.name)))
        return [*run.begin(), *run.add(call.arguments), *run.end(call.arguments)]

    def _ask(self, call_id: str, name: str, item: Item) -> str:
        """Make the id of an approval request."""
        asked_as = approval_request_id(self._options.sign, call_id, name, item)
        self._options.ask(asked_as)
        return asked_as

    def _ran(self, event: ToolFinished) -> list[ResponseEvent]:
        self._account.add_result(event)
        if event.call_id in self._searches:
            return self._new(FoundWriter(len(self._written), self._tools.found(event.found))).whole()
        run, begun = self._runs.get(event.call_id), list[ResponseEvent]()
        if run is None:
            # A call that `tool_choice` does not allow is not shown while it is written.
            run = self._new(RunWriter(len(self._written), *self._tools.origin(event.name)))
            begun = [*self._end_text(), *run.begin(), *run.add(event.arguments), *run.end(event.arguments)]
        return [*begun, *run.finish(cut_text(event.text, _RESULT_TEXT), is_error=event.is_error)]

    def _finish(self, finished: Finished) -> list[ResponseEvent]:
        whole = finished.reason != "length"
        events = self._end_text(whole=whole)
        for each in self._written:
            events += [] if each.done else each.break_off()
        status = "completed" if whole else "incomplete"
        response = {**self._now(status), "usage": _usage(finished, self._summary), "codec": self._account.codec()}
        if whole:
            response["completed_at"] = self._options.now()
        else:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        self._response = response
        self._options.keep(response)
        return [*events, {"type": f"response.{status}", "response": response}]

    def _now(self, status: str) -> dict[str, Any]:
        return {**self._head, "status": status, "output": [each.item for each in self._written if each.done]}

    def _new(self, writer: W) -> W:
        writer.named(self._options.name())
        self._written.append(writer)
        return writer

    def _numbered(self, events: list[ResponseEvent]) -> list[ResponseEvent]:
        for event, number in zip(events, self._numbers):  # noqa: B905 - numbers do not end
            event["sequence_number"] = number
        return events


class CompactedReply:
    """The reply to `/v1/responses/compact`: the user's messages, and the summary."""

    def __init__(self, reply: ResponseReply, questions: Sequence[Item]) -> None:
        """`reply`: the reply that shows the summary."""
        self._reply = reply
        self._questions = questions
        self.begin, self.feed, self.fail, self.ping = reply.begin, reply.feed, reply.fail, reply.ping

    def completion(self) -> ResponseEvent:
        """The whole answer."""
        response = self._reply.completion()
        kept = {key: response[key] for key in ("id", "created_at", "usage", "codec")}
        return {**kept, "object": "response.compaction", "output": [*self._questions, *response["output"]]}


def _usage(finished: Finished, summary: Compacted | None) -> dict[str, Any]:
    parts = [finished] if summary is None else [finished, summary]
    prompt, cached = sum(each.prompt_ids for each in parts), sum(each.cached_ids for each in parts)
    written = sum(each.completion_ids for each in parts)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": max(prompt - cached, 0)},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": finished.reasoning_ids},
        "total_tokens": prompt + written,
    }
