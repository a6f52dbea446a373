"""Two tools: one with a choice of which a branch is `true`, on which chat templates fail, and a plain one."""

from transport import answer, serve

TOOLS = [
    {
        "name": "odd",
        "description": "Takes anything.",
        "inputSchema": {"type": "object", "properties": {"extra": {"oneOf": [True, {"type": "string"}]}}},
    },
    {
        "name": "plain",
        "description": "Takes a word.",
        "inputSchema": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
]

serve(lambda request: answer(request, {"content": [{"type": "text", "text": "Done."}]}), TOOLS)
