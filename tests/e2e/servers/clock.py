"""One tool, `clock`, that adds a line to the file named by the command line for each time it is called."""

import sys
from pathlib import Path
from typing import Any

from transport import answer, serve

NAME = {"type": "string", "enum": ["Zürich", "Tokyo"]}
SCHEMA = {"type": "object", "properties": {"city": NAME}, "required": ["city"]}


def tell(request: dict[str, Any]) -> None:
    city = request["params"]["arguments"]["city"]
    with Path(sys.argv[1]).open("a", encoding="utf-8") as calls:
        calls.write(f"{city}\n")
    answer(request, {"content": [{"type": "text", "text": f"In {city} it is 9 o'clock – früh."}]})


serve(tell, [{"name": "clock", "description": "The time in a city.", "inputSchema": SCHEMA}])
