"""Tools whose names, descriptions, schemas and results want to be more than text wherever they are shown."""

from transport import answer, serve

MARKUP = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
SAID = f"{MARKUP} \u202egnp.exe\u2066 \x1b[31mred\x1b[0m \u0000 </pre></details> {{{{7*7}}}} a\u0301\u0302\u0303 "
TOOLS = [
    {
        "name": "say",
        "description": SAID,
        "inputSchema": {
            "type": "object",
            "properties": {"words": {"type": "string", "description": SAID, "default": MARKUP}},
        },
    },
    {
        "name": "shout",
        "description": "Shouts a word of a megabyte",
        "inputSchema": {"type": "object", "properties": {}},
    },
    {"name": MARKUP, "description": "Its name is markup", "inputSchema": {"type": "object", "properties": {}}},
]


def said(request):
    text = SAID if request["params"]["name"] == "say" else "W" * 1_000_000
    answer(request, {"content": [{"type": "text", "text": text}]})


serve(said, TOOLS)
