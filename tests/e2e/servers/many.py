"""183 tools, as a workplace with a dozen servers has them; each says what it was asked."""

import json

from transport import answer, serve

AREAS = ("billing", "calendar", "mail", "tickets", "wiki", "builds", "alerts", "contacts", "files", "orders", "stock")
TOOLS = [
    {
        "name": f"{AREAS[n % len(AREAS)]}_action_{n}",
        "description": f"Works on entry {n} of {AREAS[n % len(AREAS)]}: finds it, changes it and says what came of it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "entry": {"type": "string", "description": "Its number, or the words that stand in its title"},
                "since": {"type": "string", "description": "Only what has changed since this day, as YYYY-MM-DD"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "The most entries to give"},
            },
            "required": ["entry"],
        },
    }
    for n in range(183)
]

serve(lambda request: answer(request, {"content": [{"type": "text", "text": json.dumps(request["params"])}]}), TOOLS)
