"""How the odd servers deviate, as data: a name, and what `odd.py` and the two servers are to do differently.

`EVERYWHERE` is tried over both transports, what both carry alike over one of them. Strings `"<id>"` and `"<token>"` in
messages beside an answer stand for the request's id and its progress token. What each client made of them is in
`verdicts.json`.
"""

from typing import Any, Final

from tests.odd_servers.odd import GONE

Table = dict[str, dict[str, Any]]


def nested(depth: int) -> Any:
    """An object that many objects deep."""
    value: Any = "deep"
    for _ in range(depth):
        value = {"in": value}
    return value


def told(method: str, params: Any = GONE) -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, **({} if params == GONE else {"params": params})}


def asked(method: str, number: Any = 901, **params: Any) -> dict[str, Any]:
    """A request of the server's."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


LOG: Final = told("notifications/message", {"level": "info", "data": "hello"})
TEXT: Final = [{"type": "text", "text": "done"}]
TWO_PAGES: Final = {"": {"tools": ["odd"], "nextCursor": "2"}, "2": {"tools": []}}


def pages(cursor: Any) -> dict[str, Any]:
    """One page that names this cursor as that of the next, which is the same page."""
    page = {"tools": ["odd"], "nextCursor": cursor}
    return {"pages": {"": page, str(cursor): page}}


ENVELOPES: Final[Table] = {
    "honest": {},
    "id as a string": {"id": '"{}"'},
    "id as a float": {"id": "{}.0"},
    "id with a zero before": {"id": '"0{}"'},
    "no jsonrpc": {"answer": {"jsonrpc": GONE}},
    "jsonrpc a number": {"answer": {"jsonrpc": 2.0}},
    "jsonrpc 1.0": {"answer": {"jsonrpc": "1.0"}},
    "error null beside the result": {"answer": {"error": None}},
    "error {} beside the result": {"answer": {"error": {}}},
    "error false beside the result": {"answer": {"error": False}},
    "method null beside the result": {"answer": {"method": None}},
    "params null beside the result": {"answer": {"params": None}},
    "more fields around the result": {"answer": {"trace": "1", "time": 3, "ok": True}},
    "result before the id": {"order": ["result", "id", "jsonrpc"]},
    "jsonrpc last": {"order": ["id", "result", "jsonrpc"]},
    "id given twice": {"replace": [['{"jsonrpc"', '{"id":99,"jsonrpc"']]},
    "blanks everywhere": {"dump": {"separators": (" ,\t", " : ")}},
    "every character escaped": {"dump": {"ensure_ascii": True}, "tool": {"description": "höher 🚀"}},
    "solidus escaped": {"tool": {"description": "a/b"}, "replace": [["a/b", "a\\/b"]]},
    "line separators in text": {"call": {"content": [{"type": "text", "text": "a\u2028b\u2029c\x85d"}]}},
    "half a surrogate in the answer": {
        "call": {"content": [{"type": "text", "text": "a@"}]},
        "replace": [["a@", "\\ud83d"]],
    },
    "half a surrogate in a description": {"tool": {"description": "a@"}, "replace": [["a@", "\\ud83d"]]},
    "NUL in the answer": {"call": {"content": [{"type": "text", "text": "a\x00b"}]}},
    "emoji and right to left": {"call": {"content": [{"type": "text", "text": "👩‍👩‍👧 שלום \u202e"}]}},
    "large integers": {"call": {"_meta": {"big": 2**80, "less": -(2**63) - 1}}},
    "numbers spelled oddly": {
        "call": {"_meta": {"n": "@"}},
        "replace": [['"@"', "[1.50e3, -0, 0.10000000000000000555, 1E400]"]],
    },
    "NaN in the answer": {"call": {"_meta": {"n": "@"}}, "replace": [['"@"', "NaN"]]},
    "nested 100 deep": {"call": {"_meta": {"deep": nested(100)}}},
    "nested 190 deep": {"call": {"_meta": {"deep": nested(190)}}},
    "nested 300 deep": {"call": {"_meta": {"deep": nested(300)}}},
    "trailing comma": {"replace": [['"done"}', '"done",}']]},
    "an empty key": {"call": {"_meta": {"": 1}}},
    "keys like a prototype's": {"call": {"_meta": {"__proto__": 1, "constructor": 2}}},
}

GREETINGS: Final[Table] = {
    "capabilities {}": {"initialize": {"capabilities": {"=": {}}}},
    "no capabilities": {"initialize": {"capabilities": GONE}},
    "capabilities null": {"initialize": {"capabilities": None}},
    "capabilities []": {"initialize": {"capabilities": []}},
    "tools true": {"initialize": {"capabilities": {"tools": True}}},
    "tools []": {"initialize": {"capabilities": {"tools": []}}},
    "tools null": {"initialize": {"capabilities": {"tools": None}}},
    "listChanged null": {"initialize": {"capabilities": {"tools": {"listChanged": None}}}},
    "listChanged a word": {"initialize": {"capabilities": {"tools": {"listChanged": "yes"}}}},
    "promises prompts that it has not": {
        "initialize": {"capabilities": {"prompts": {}, "resources": {"subscribe": True}}}
    },
    "unknown capabilities": {"initialize": {"capabilities": {"sparkle": {"level": 3}, "experimental": {"x": {}}}}},
    "experimental null": {"initialize": {"capabilities": {"experimental": None}}},
    "logging null": {"initialize": {"capabilities": {"logging": None}}},
    "version 2024-11-05": {"initialize": {"protocolVersion": "2024-11-05"}},
    "version 2025-03-26": {"initialize": {"protocolVersion": "2025-03-26"}},
    "version 2025-11-25": {"initialize": {"protocolVersion": "2025-11-25"}},
    "version 2024-10-07": {"initialize": {"protocolVersion": "2024-10-07"}},
    "version of next century": {"initialize": {"protocolVersion": "2099-01-01"}},
    "version 1.0": {"initialize": {"protocolVersion": "1.0"}},
    "no version": {"initialize": {"protocolVersion": GONE}},
    "no serverInfo": {"initialize": {"serverInfo": GONE}},
    "serverInfo null": {"initialize": {"serverInfo": None}},
    "serverInfo {}": {"initialize": {"serverInfo": {"=": {}}}},
    "serverInfo without version": {"initialize": {"serverInfo": {"version": GONE}}},
    "serverInfo with more": {"initialize": {"serverInfo": {"vendor": "x", "title": "Odd", "name": ""}}},
    "serverInfo title null": {"initialize": {"serverInfo": {"title": None}}},
    "serverInfo version a number": {"initialize": {"serverInfo": {"version": 1}}},
    "instructions null": {"initialize": {"instructions": None}},
    "instructions a list": {"initialize": {"instructions": ["a"]}},
    "long instructions": {"initialize": {"instructions": "@"}, "repeat": ["@", "x", 30_000]},
    "greeting with _meta null": {"initialize": {"_meta": None}},
    "greeting with more fields": {"initialize": {"hello": "world", "tools": []}},
    "refuses lists before initialized": {"needs_initialized": True},
    "resultType of the next era": {
        "initialize": {"resultType": "complete"},
        "call": {"resultType": "complete", "ttlMs": 0},
    },
}

METHODS: Final[Table] = {
    "unknown methods get {}": {"unknown": {"result": {}}},
    "unknown methods get null": {"unknown": {"result": None}},
    "unknown methods get a text": {"unknown": {"error": "what?"}},
    "unknown methods get -32600": {"unknown": {"error": {"code": -32600, "message": "Invalid request"}}},
    "unknown methods get -32602": {"unknown": {"error": {"code": -32602, "message": "Invalid params"}}},
    "unknown methods get a code that is a string": {"unknown": {"error": {"code": "E1", "message": "no"}}},
    "ping unknown": {"ping": {"error": {"code": -32601, "message": "no ping"}}},
    "ping answered []": {"ping": {"result": []}},
    "ping answered null": {"ping": {"result": None}},
    "ping answered pong": {"ping": {"result": "pong"}},
}

LISTS: Final[Table] = {
    "nextCursor empty": pages(""),
    "nextCursor null": {"list": {"nextCursor": None}},
    "nextCursor false": {"list": {"nextCursor": False}},
    "nextCursor a number": pages(2),
    "nextCursor the same again": pages("again"),
    "two pages": {"pages": TWO_PAGES},
    "list with more fields": {"list": {"total": 1, "_meta": {"a": 1}, "ttlMs": -5}},
    "list with _meta null": {"list": {"_meta": None}},
    "list with _meta []": {"list": {"_meta": []}},
    "300 more tools": {"more_tools": 300},
    "another tool of the same name": {"other_tools": [{"name": "odd", "inputSchema": {"type": "object"}}]},
    "another tool without name": {"other_tools": [{"inputSchema": {"type": "object"}}]},
    "null among the tools": {"other_tools": [None]},
    "description null": {"tool": {"description": None}},
    "no description": {"tool": {"description": GONE}},
    "title null": {"tool": {"title": None}},
    "annotations null": {"tool": {"annotations": None}},
    "annotations with more": {"tool": {"annotations": {"readOnlyHint": True, "cost": 3, "title": "Odd"}}},
    "annotations with words": {"tool": {"annotations": {"readOnlyHint": "yes"}}},
    "outputSchema null": {"tool": {"outputSchema": None}},
    "tool with _meta null": {"tool": {"_meta": None}},
    "icons []": {"tool": {"icons": []}},
    "execution null": {"tool": {"execution": None}},
    "tool with more fields": {"tool": {"version": 3, "tags": ["a"], "inputs": None}},
    "no inputSchema": {"tool": {"inputSchema": GONE}},
    "inputSchema null": {"tool": {"inputSchema": None}},
    "inputSchema {}": {"tool": {"inputSchema": {"=": {}}}},
    "inputSchema true": {"tool": {"inputSchema": True}},
    "inputSchema without type": {"tool": {"inputSchema": {"type": GONE}}},
    "inputSchema of a list of types": {"tool": {"inputSchema": {"type": ["object", "null"]}}},
    "inputSchema with anyOf": {"tool": {"inputSchema": {"=": {"anyOf": [{"type": "object"}]}}}},
    "properties []": {"tool": {"inputSchema": {"properties": []}}},
    "properties null": {"tool": {"inputSchema": {"properties": None}}},
    "required null": {"tool": {"inputSchema": {"required": None}}},
    "required true on a property": {"tool": {"inputSchema": {"properties": {"word": {"required": True}}}}},
    "a property that is true": {"tool": {"inputSchema": {"properties": {"any": True}}}},
    "schema with $schema, $id and $defs": {
        "tool": {"inputSchema": {"$schema": "x:y", "$id": "z", "$defs": {"a": {"$ref": "#/$defs/a"}}}}
    },
    "schema with types of its own": {"tool": {"inputSchema": {"properties": {"word": {"type": "int"}}}}},
    "tool name with blanks": {"tool": {"name": "odd one"}},
    "tool name with dots and slashes": {"tool": {"name": "a.b/c:d"}},
    "tool name of emoji": {"tool": {"name": "🚀"}},
    "tool name of 200 characters": {"tool": {"name": "n" * 200}},
}

CALLS: Final[Table] = {
    "content []": {"call": {"content": []}},
    "no content": {"call": {"content": GONE}},
    "content null": {"call": {"content": None}},
    "content a string": {"call": {"content": "done"}},
    "content an object": {"call": {"content": {"type": "text", "text": "done"}}},
    "structuredContent alone": {"call": {"content": GONE, "structuredContent": {"a": 1}}},
    "structuredContent null": {"call": {"structuredContent": None}},
    "structuredContent a list": {"call": {"structuredContent": [1]}},
    "toolResult of 2024-10-07": {"call": {"content": GONE, "toolResult": "done"}},
    "isError null": {"call": {"isError": None}},
    "isError true": {"call": {"isError": True}},
    "isError a word": {"call": {"isError": "false"}},
    "result with _meta null": {"call": {"_meta": None}},
    "result with more fields": {"call": {"duration": 3, "logs": ["a"]}},
    "unknown type of content": {"call": {"content": [*TEXT, {"type": "chart", "points": [1]}]}},
    "text null": {"call": {"content": [{"type": "text", "text": None}]}},
    "content with annotations null": {"call": {"content": [{"type": "text", "text": "done", "annotations": None}]}},
    "content with more fields": {"call": {"content": [{"type": "text", "text": "done", "lang": "en", "_meta": {}}]}},
    "image without a type": {"call": {"content": [{"type": "image", "data": "AA=="}]}},
    "image and audio": {
        "call": {
            "content": [
                {"type": "image", "data": "AA==", "mimeType": "image/png"},
                {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
            ]
        }
    },
    "link and embedded resource": {
        "call": {
            "content": [
                {"type": "resource_link", "name": "r", "uri": "x:1"},
                {"type": "resource", "resource": {"uri": "x:2", "text": "t"}},
            ]
        }
    },
    "answer of 300 kB": {"call": {"content": [{"type": "text", "text": "@"}]}, "repeat": ["@", "x", 300_000]},
    "error -32602": {"call_outcome": {"error": {"code": -32602, "message": "no such tool"}}},
    "error with data null": {"call_outcome": {"error": {"code": -5, "message": "no", "data": None}}},
    "error with an odd code": {"call_outcome": {"error": {"code": 404, "message": "no", "stack": []}}},
    "error without message": {"call_outcome": {"error": {"code": -5}}},
    "error with a code that is a string": {"call_outcome": {"error": {"code": "E1", "message": "no"}}},
    "error that is a text": {"call_outcome": {"error": "no"}},
    "result null": {"call_outcome": {"result": None}},
}

BESIDE: Final[Table] = {
    "log before each answer": {"before": [LOG]},
    "log after each answer": {"after": [LOG]},
    "list_changed before each answer": {"before": [told("notifications/tools/list_changed")]},
    "notification with params null": {"before": [told("notifications/message", None)]},
    "notification with params []": {"before": [told("notifications/tools/list_changed", [])]},
    "unknown notification": {"before": [told("notifications/sparkle", {"a": 1})]},
    "notification without a prefix": {"before": [told("sparkle", {"a": 1})]},
    "log of an unknown level": {"before": [told("notifications/message", {"level": "trace", "data": 1})]},
    "log without data": {"before": [told("notifications/message", {"level": "info"})]},
    "progress of an unknown token": {"before": [told("notifications/progress", {"progressToken": "x", "progress": 1})]},
    "progress without a token": {"before": [told("notifications/progress", {"progress": 1})]},
    "progress that is a text": {
        "before": [told("notifications/progress", {"progressToken": "<token>", "progress": "1"})]
    },
    "progress of the call": {"before": [told("notifications/progress", {"progressToken": "<token>", "progress": 1})]},
    "cancels what nobody asked": {"before": [told("notifications/cancelled", {"requestId": 77})]},
    "ping before each answer": {"before": [asked("ping")]},
    "ping with a string as id": {"before": [asked("ping", "p-1")]},
    "asks for roots before each answer": {"before": [asked("roots/list")]},
    "asks for what nobody knows": {"before": [asked("sparkle/do", 902, a=1)]},
    "answers what nobody asked": {"before": [{"jsonrpc": "2.0", "id": 777, "result": {}}]},
    "each answer twice": {"after": [{"jsonrpc": "2.0", "id": "<id>", "result": {}}]},
    "an error without id after each answer": {
        "after": [{"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": "x"}}]
    },
    "a message that is no message before each answer": {"before": [{"hello": "world"}]},
    "text before each answer": {"before": ["Working ..."]},
    "an empty object before each answer": {"before": [{}]},
    "logs, progress and pings together": {
        "before": [LOG, asked("ping", 5), LOG, asked("ping", 6)],
        "after": [LOG, LOG],
    },
}

EVERYWHERE: Final[Table] = {**ENVELOPES, **METHODS, **BESIDE}

_STDIO: Final[Table] = {
    "CRLF": {"end": "\r\n"},
    "bare CR": {"end": "\r"},
    "blank lines between": {"end": "\n\n \n\t\n"},
    "blanks around each line": {"prefix": " \t ", "suffix": "  "},
    "byte order mark first": {"opening": "\ufeff"},
    "byte order mark on each line": {"prefix": "\ufeff"},
    "form feed before each line": {"prefix": "\f"},
    "NUL after each line": {"suffix": "\0"},
    "words before the first answer": {"opening": "Loading npm...\nReady on stdio\n"},
    "words before the first answer on its line": {"opening": "Loading npm... "},
    "words before each answer": {"between": "INFO handling\n"},
    "words before each answer on its line": {"between": "INFO "},
    "colours before each answer": {"between": "\x1b[32mok\x1b[0m\n"},
    "colours on the same line": {"between": "\x1b[2K\r"},
    "JSON log before each answer": {"between": '{"level":"info","msg":"hello","id":1}\n'},
    "a number before each answer": {"between": "42\n"},
    "a string before each answer": {"between": '"hello"\n'},
    "an empty list before each answer": {"between": "[]\n"},
    "a broken line before each answer": {"between": '{"jsonrpc":"2.0","id":\n'},
    "Latin-1 before each answer": {"between": "\0gr\xfc\xdfe\n"},
    "line separators before each answer": {"between": "\u2028\x85\n"},
    "a long line before each answer": {"between": "x" * 100_000 + "\n"},
    "Content-Length before each answer": {"framed": True},
    "UTF-16": {"encoding": "utf-16"},
    "two messages on one line": {"joined": True},
    "answers in a batch": {"batch": True},
    "ten bytes at a time": {"pieces": 10},
    "one byte at a time": {"pieces": 1},
    "much on standard error": {"stderr": "warning: deprecated\n" * 3000},
    "standard error without line end": {"stderr": "no end" * 100},
    "echoes what it reads": {"echoes": True},
    "leaves after the call": {"leaves_after": "tools/call"},
    "leaves after the call, without line end": {"leaves_after": "tools/call", "cut_after": "tools/call"},
    "dies of server/discover": {"dies_of": ["server/discover"]},
    "dies of ping": {"dies_of": ["ping", "server/discover", "prompts/list"]},
}
STDIO: Final[Table] = {
    **{name: {"stdio": says} for name, says in _STDIO.items()},
    "unknown methods get nothing": {"unknown": "nothing"},
    "ping gets nothing": {"ping": "nothing"},
}
# Two messages that can share a line.
STDIO["two messages on one line"]["before"] = [LOG]
STDIO["answers in a batch"]["before"] = [LOG]


def sse(event: str = "event: message\ndata: {}\n\n", **more: Any) -> dict[str, Any]:
    """Answers as events of this form."""
    return {"form": "sse", "event": event, **more}


def notified(status: int, kind: str | None = None, body: str = "") -> dict[str, Any]:
    """The answer to notifications."""
    return {"notification": {"status": status, "type": kind, "body": body}}


def got(status: int, kind: str | None = None, body: str = "", **more: Any) -> dict[str, Any]:
    """The answer to GET, in a session."""
    return {"session": "s-1", "get": {"status": status, "type": kind, "body": body, **more}}


_HTTP: Final[Table] = {
    "JSON with a charset": {"type": "application/json; charset=utf-8"},
    "JSON in capitals": {"type": "Application/JSON"},
    "JSON of a vendor": {"type": "application/vnd.mcp+json"},
    "application/json-rpc": {"type": "application/json-rpc"},
    "text/json": {"type": "text/json"},
    "JSON as text/plain": {"type": "text/plain"},
    "no content type": {"type": None},
    "content type twice": {"headers": [["Content-Type", "application/json"]]},
    "content type with a comma": {"type": "application/json, charset=utf-8"},
    "content type with a blank before the semicolon": {"type": "application/json ;charset=utf-8"},
    "answers in a batch": {"batch": True},
    "JSON after a byte order mark": {"opening": "\ufeff"},
    "JSON after words": {"opening": "ok "},
    "JSON between blank lines": {"opening": "\r\n\r\n", "closing": "\r\n\r\n"},
    "status 201": {"status": 201},
    "status 202": {"status": 202},
    "status 203": {"status": 203},
    "status 206": {"status": 206},
    "status 299": {"status": 299},
    "status 200 without a reason": {"reason": ""},
    "status 200 with a reason in UTF-8": {"reason": " Größe"},
    "result with status 400": {"status": 400, "only": ["tools/call"]},
    "result with status 500": {"status": 500, "only": ["tools/call"]},
    "chunked": {"framing": "chunked", "pieces": 7},
    "chunked byte by byte": {"framing": "chunked", "pieces": 1},
    "chunks with extensions": {"framing": "chunked", "pieces": 40, "extension": ";a=b"},
    "trailers": {"framing": "chunked", "trailer": "X-Sum: 1\r\n"},
    "Chunked in capitals": {"framing": "chunked", "coding": "Chunked"},
    "until the connection closes": {"framing": "close"},
    "HTTP/1.0": {"http": "HTTP/1.0", "framing": "close"},
    "HTTP/1.0 with a length": {"http": "HTTP/1.0", "closes": True},
    "closes after each answer": {"headers": [["Connection", "close"]], "closes": True},
    "closes without a word": {"closes": True},
    "length given twice": {"lengths": 2},
    "early hints": {"interim": "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"},
    "100 continue": {"interim": "HTTP/1.1 100 Continue\r\n\r\n"},
    "header names in capitals": {"case": "upper", "session": "s-1"},
    "header names in lower case": {"case": "lower", "session": "s-1"},
    "no blank after the colon": {"colon": ":"},
    "blanks around header values": {"colon": ": \t "},
    "an empty header": {"headers": [["X-Nothing", ""]]},
    "a long header": {"headers": [["X-Long", "x" * 7000]]},
    "100 headers": {"headers": [[f"X-{number}", "1"] for number in range(90)]},
    "a header in UTF-8": {"headers": [["X-Name", "größe"]]},
    "lines that end in LF": {"head_end": "\n"},
    "gzip unasked": {"compress": "gzip", "headers": [["Content-Encoding", "gzip"]]},
    "x-gzip unasked": {"compress": "gzip", "headers": [["Content-Encoding", "x-gzip"]]},
    "GZIP in capitals": {"compress": "gzip", "headers": [["Content-Encoding", "GZIP"]]},
    "deflate unasked": {"compress": "deflate", "headers": [["Content-Encoding", "deflate"]]},
    "raw deflate unasked": {"compress": "raw", "headers": [["Content-Encoding", "deflate"]]},
    "gzip, chunked": {"compress": "gzip", "headers": [["Content-Encoding", "gzip"]], "framing": "chunked", "pieces": 9},
    "events in gzip": sse(compress="gzip", headers=[["Content-Encoding", "gzip"]], framing="chunked", pieces=9),
    "encoding identity": {"headers": [["Content-Encoding", "identity"]]},
    "encoding none": {"headers": [["Content-Encoding", "none"]]},
    "encoding utf-8": {"headers": [["Content-Encoding", "utf-8"]]},
    "an empty encoding": {"headers": [["Content-Encoding", ""]]},
    "events": sse(),
    "events with a charset": sse(type="text/event-stream;charset=utf-8"),
    "events in capitals": sse(type="Text/Event-Stream"),
    "events without a kind": sse("data: {}\n\n"),
    "events of another kind": sse("event: response\ndata: {}\n\n"),
    "events with an empty kind": sse("event:\ndata: {}\n\n"),
    "events without a blank": sse("event:message\ndata:{}\n\n"),
    "events that end in CRLF": sse(line_end="\r\n"),
    "events that end in CR": sse(line_end="\r"),
    "events without the last blank line": sse("event: message\ndata: {}\n"),
    "events without the last line end": sse("event: message\ndata: {}"),
    "events with ids": sse("id: 3\nevent: message\ndata: {}\n\n"),
    "events with a pause": sse("retry: 50\ndata: {}\n\n"),
    "events with unknown fields": sse("foo: bar\nbaz\ndata: {}\n\n"),
    "events after comments": sse(opening=": ping\n\n:\n\n"),
    "events after one without data": sse(opening="id: 1\ndata:\n\n"),
    "events after a ping": sse(opening="event: ping\ndata: {}\n\n"),
    "events after words": sse(opening="data: hello\n\n"),
    "events before [DONE]": sse(closing="data: [DONE]\n\n"),
    "events after a byte order mark": sse(opening="\ufeff"),
    "events byte by byte": sse(framing="chunked", pieces=1),
    "events until the connection closes": sse(framing="close"),
    "a stream that stays open": sse(framing="chunked", stays=True),
    "a stream that is resumed": {**sse(), **got(200, gives_kept=True), "resumes": True, "only": ["tools/call"]},
    "JSON in an event stream": {"form": "json", "type": "text/event-stream"},
    "events as JSON": sse(type="application/json"),
    "answers come on the GET stream": {**got(200, gives_kept=True), "answers_on_get": True},
    "notifications get 200": notified(200),
    "notifications get 200 and null": notified(200, "application/json", "null"),
    "notifications get 200 and {}": notified(200, "application/json", "{}"),
    "notifications get 200 and an answer": notified(200, "application/json", '{"jsonrpc":"2.0","id":null,"result":{}}'),
    "notifications get 200 and empty JSON": notified(200, "application/json"),
    "notifications get 200 and a text": notified(200, "text/plain", "ok"),
    "notifications get 200 and an empty stream": notified(200, "text/event-stream"),
    "notifications get 202 and a body": notified(202, "application/json", '{"ok":true}'),
    "notifications get 204": notified(204),
    "notifications get 400": notified(400, "text/plain", "no"),
    "notifications get 404": notified(404),
    "notifications get 500": notified(500),
    "GET gets 405": got(405),
    "GET gets 404": got(404),
    "GET gets 400": got(400),
    "GET gets 500": got(500),
    "GET gets 501": got(501),
    "GET gets a page": got(200, "text/html", "<p>hello</p>"),
    "GET gets JSON": got(200, "application/json", "{}"),
    "GET gets an empty stream": got(200, "text/event-stream"),
    "GET gets 204": got(204),
    "GET gets nothing": got(200, hangs=True),
    "DELETE gets 405": {"session": "s-1", "delete": {"status": 405}},
    "DELETE gets 500": {"session": "s-1", "delete": {"status": 500}},
    "session repeated": {"session": "s-1", "repeats_session": True},
    "session in lower case": {"session": "s-1", "session_header": "mcp-session-id"},
    "session that must be sent": {"session": "s-1", "needs": {"mcp-session-id": "s-1"}},
    "session of 3000 characters": {"session": "s" * 3000, "needs": {"mcp-session-id": "s" * 3000}},
    "session with blanks": {"session": "a b;c=d", "needs": {"mcp-session-id": "a b;c=d"}},
    "session in Latin-1": {"session": "größe"},
    "session like base64": {"session": "a+/=.~|", "needs": {"mcp-session-id": "a+/=.~|"}},
    "another session with each answer": {"rotates": True},
    "an empty session": {"session": ""},
    "session given twice": {"session": "s-1", "headers": [["Mcp-Session-Id", "s-1"]]},
    "version that must be sent": {"needs": {"mcp-protocol-version": "2025-06-18"}},
    "a cookie that must be sent": {
        "headers": [["Set-Cookie", "route=a; Path=/; HttpOnly"]],
        "needs": {"cookie": "route=a"},
    },
    "a cookie": {"headers": [["Set-Cookie", "route=a; Path=/"], ["Set-Cookie", "b=c"]]},
    "redirect 301": {"redirect": 301},
    "redirect 302": {"redirect": 302},
    "redirect 303": {"redirect": 303},
    "redirect 307": {"redirect": 307},
    "redirect 308": {"redirect": 308},
    "address with a query": {"path": "/x?key=a&b"},
    "address with escapes": {"path": "/a%20b/%C3%A4?c=%26"},
    "address with a trailing slash": {"path": "/"},
    "unknown methods get 404": {"others": {"status": 404, "type": None}},
    "unknown methods get 400": {"others": {"status": 400}},
    "unknown methods get 500": {"others": {"status": 500, "type": "text/html"}},
    "unknown methods get 202": {"others": {"status": 202, "type": None}},
    "unknown methods get a page": {"others": {"status": 200, "type": "text/html"}},
}
HTTP: Final[Table] = {name: {"http": says} for name, says in _HTTP.items()}
HTTP["answers in a batch"]["before"] = [LOG]
HTTP["unknown methods are unauthorized"] = {"http": {"others": {"status": 401, "type": None}}}
NO_DISCOVERY: Final = '{"error":{"code":401,"message":"Failure","data":"{\\"code\\":-32601}"}}'
NO_SESSION: Final = '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Mcp-Session-Id header is required"}}'
HTTP["unknown methods get 401 and the reason in data"] = {
    "http": {"others": {"status": 401, "type": "application/json", "body": NO_DISCOVERY}}
}
HTTP["unknown methods get 400 for want of a session"] = {
    "http": {"others": {"status": 400, "type": "application/json", "body": NO_SESSION}}
}
HTTP["errors with status 400"] = {**CALLS["error -32602"], "http": {"status": 400, "only": ["tools/call"]}}
HTTP["errors with status 404"] = {**CALLS["error -32602"], "http": {"status": 404, "only": ["tools/call"]}}
HTTP["errors with status 500"] = {**CALLS["error -32602"], "http": {"status": 500, "only": ["tools/call"]}}
HTTP["errors as events"] = {**CALLS["error -32602"], "http": sse()}

TABLES: Final[dict[str, Table]] = {
    "stdio": {**EVERYWHERE, **GREETINGS, **STDIO},
    "http": {**EVERYWHERE, **LISTS, **CALLS, **HTTP},
}
