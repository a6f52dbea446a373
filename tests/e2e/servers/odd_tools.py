"""Two tools: one with a property that is `true`, which chat templates fail on, and a plain one."""

from transport import answer, serve

TOOLS = [
    {
        "name": "odd",
        "description": "Takes anything.",
        "inputSchema": {"type": "object", "properties": {"extra": True}},
    },
    {
        "name": "plain",
        "description": "Takes a word.",
        "inputSchema": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
]

serve(lambda request: answer(request, {"content": [{"type": "text", "text": "Done."}]}), TOOLS)
