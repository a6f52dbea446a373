"""The script for the npm server `everything`: each kind of result, push and question that MCP has. Data only."""

from tests.exchanges.steps import Step, call

_DYNAMIC = "demo://resource/dynamic"
_DATA = "data:text/plain;base64,aGVsbG8gd29ybGQ="
_MODEL = {"role": "assistant", "content": {"type": "text", "text": "Four."}, "model": "tiny", "stopReason": "endTurn"}
_FORM = {"name": "Ada", "check": True, "integer": 42, "untitledSingleSelectEnum": "Monica"}


def _prompt(step: str, name: str, /, **arguments: str) -> Step:
    params = {"name": name, "arguments": arguments} if arguments else {"name": name}
    return Step(step, "prompts/get", params)


def _read(step: str, uri: str) -> Step:
    return Step(step, "resources/read", {"uri": uri})


def _complete(step: str, ref: dict[str, str], name: str, value: str, **known: str) -> Step:
    context = {"context": {"arguments": known}} if known else {}
    return Step(step, "completion/complete", {"ref": ref, "argument": {"name": name, "value": value}, **context})


_TEAM = {"type": "ref/prompt", "name": "completable-prompt"}
_TEMPLATE = {"type": "ref/resource", "uri": f"{_DYNAMIC}/text/{{resourceId}}"}
_TOOLS = (
    # First: a third of a second later the server asks for the roots of its own accord, in the midst of another call.
    call("roots", "get-roots-list", {}),
    Step("list the tools", "tools/list"),
    call("echo", "echo", {"message": "hello"}),
    call(
        "echo of every kind of character",
        "echo",
        {"message": 'ä 漢字 🦄 \u2028 \u0007 "\\ <|im_end|> </tool_response>'},
    ),
    call("echo of a long text", "echo", {"message": "0123456789abcdef" * 512}),
    call("echo of nothing", "echo", {"message": ""}),
    call("echo without its argument", "echo", {}),
    call("echo without arguments", "echo"),
    call("sum", "get-sum", {"a": 2, "b": 3}),
    call("sum of fractions", "get-sum", {"a": -0.5, "b": 1e21}),
    call("sum of large whole numbers", "get-sum", {"a": 9007199254740991, "b": 0}),
    call("sum of texts", "get-sum", {"a": "2", "b": "3"}),
    call("image", "get-tiny-image", {}),
    call("annotated error", "get-annotated-message", {"messageType": "error"}),
    call("annotated success with an image", "get-annotated-message", {"messageType": "success", "includeImage": True}),
    call("annotated debug", "get-annotated-message", {"messageType": "debug", "includeImage": False}),
    call("annotated of no kind", "get-annotated-message", {"messageType": "whisper"}),
    call("structured content", "get-structured-content", {"location": "New York"}),
    call("structured content again", "get-structured-content", {"location": "Chicago"}),
    call("structured content of nowhere", "get-structured-content", {"location": "Atlantis"}),
    call("resource links", "get-resource-links", {"count": 3}),
    call("ten resource links", "get-resource-links", {"count": 10}),
    call("too many resource links", "get-resource-links", {"count": 11}),
    call("embedded text", "get-resource-reference", {"resourceType": "Text", "resourceId": 2}),
    call("embedded blob", "get-resource-reference", {"resourceType": "Blob", "resourceId": 3}),
    call("embedded by a bad id", "get-resource-reference", {"resourceType": "Text", "resourceId": -1}),
    call(
        "compressed, as a resource", "gzip-file-as-resource", {"name": "a.gz", "data": _DATA, "outputType": "resource"}
    ),
    call(
        "compressed, as a link", "gzip-file-as-resource", {"name": "b.gz", "data": _DATA, "outputType": "resourceLink"}
    ),
    _read("what the link names", "demo://resource/session/b.gz"),
    call("tool that there is not", "no-such-tool", {}),
    call("tool that wants a task", "simulate-research-query", {"topic": "owls"}),
)
_PUSHES = (
    call("progress", "trigger-long-running-operation", {"duration": 0.03, "steps": 3}, progress=True, hears=3),
    call("no progress where none is asked for", "trigger-long-running-operation", {"duration": 0.03, "steps": 3}),
    call(
        "cancelled",
        "trigger-long-running-operation",
        {"duration": 40, "steps": 800},
        progress=True,
        hears=1,
        cancel=True,
    ),
    call("after the cancelled one", "echo", {"message": "still here"}),
    Step("set the log level", "logging/setLevel", {"level": "debug"}, eras="handshake"),
    Step("set no log level", "logging/setLevel", {"level": "loud"}, eras="handshake", own=True),
    Step("subscribe", "resources/subscribe", {"uri": f"{_DYNAMIC}/text/1"}, hears=1, modern="listen"),
    call("updates begin", "toggle-subscriber-updates", {}, hears=1, unasked=True),
    call("updates end", "toggle-subscriber-updates", {}, unasked=True),
    Step("unsubscribe", "resources/unsubscribe", {"uri": f"{_DYNAMIC}/text/1"}, hears=1, modern="unlisten"),
    Step("ping", "ping", eras="handshake"),
)
_QUESTIONS = (
    call("sampling", "trigger-sampling-request", {"prompt": "2+2?", "maxTokens": 7}, answers=(_MODEL,), hears=1),
    call(
        "form, filled in",
        "trigger-elicitation-request",
        {},
        answers=({"action": "accept", "content": _FORM},),
        hears=1,
    ),
    call("form, declined", "trigger-elicitation-request", {}, answers=({"action": "decline"},), hears=1),
    call("form, put away", "trigger-elicitation-request", {}, answers=({"action": "cancel"},), hears=1),
    call(
        "address to open",
        "trigger-url-elicitation",
        {"url": "https://example.com/pay", "message": "Pay", "elicitationId": "e-1"},
        answers=({"action": "accept"},),
        hears=1,
    ),
    call(
        "address to open, told by an error",
        "trigger-url-elicitation",
        {"url": "https://example.com/pay", "elicitationId": "e-2", "errorPath": True},
    ),
)
_REST = (
    Step("list the prompts", "prompts/list"),
    _prompt("simple prompt", "simple-prompt"),
    _prompt("prompt with one argument", "args-prompt", city="Ulm"),
    _prompt("prompt with both arguments", "args-prompt", city="Ulm", state="BW"),
    _prompt("prompt without its argument", "args-prompt"),
    _prompt("prompt with completions", "completable-prompt", department="Sales", name="Eve"),
    _prompt("prompt with embedded text", "resource-prompt", resourceType="Text", resourceId="1"),
    _prompt("prompt with an embedded blob", "resource-prompt", resourceType="Blob", resourceId="2"),
    _prompt("prompt with a bad argument", "resource-prompt", resourceType="Sound", resourceId="2"),
    _prompt("prompt that there is not", "no-such-prompt"),
    _complete("complete from nothing", _TEAM, "department", ""),
    _complete("complete in a context", _TEAM, "name", "A", department="Engineering"),
    _complete("complete a template", _TEMPLATE, "resourceId", "12"),
    _complete("complete nothing known", {"type": "ref/prompt", "name": "no-such-prompt"}, "x", ""),
    Step("list the resources", "resources/list"),
    Step("list the templates", "resources/templates/list"),
    _read("static document", "demo://resource/static/document/startup.md"),
    _read("dynamic text", f"{_DYNAMIC}/text/7"),
    _read("dynamic blob", f"{_DYNAMIC}/blob/8"),
    _read("dynamic text by a bad id", f"{_DYNAMIC}/text/seven"),
    _read("resource that there is not", "demo://resource/none"),
    Step("method that there is not", "library/search", {"for": "owls"}),
)
STEPS = (*_TOOLS, *_PUSHES, *_QUESTIONS, *_REST)
