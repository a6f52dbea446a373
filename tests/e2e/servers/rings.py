"""One tool, `say`: each call rings by writing its arguments to the pipe that the command line names, then answers."""

import json
import sys
from pathlib import Path
from typing import Any

from transport import answer, serve


def ring(request: dict[str, Any]) -> None:
    said = json.dumps(request["params"]["arguments"])
    Path(sys.argv[1]).write_text(said)
    answer(request, {"content": [{"type": "text", "text": said}]})


serve(ring)
