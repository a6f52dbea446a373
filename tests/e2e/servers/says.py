"""One tool, `say`, whose result is what the command line says: content blocks as JSON, or a file of them."""

import json
import sys
from pathlib import Path

from transport import answer, serve

GIVEN = sys.argv[1]
CONTENT = json.loads(GIVEN if GIVEN.startswith("[") else Path(GIVEN).read_text())

serve(lambda request: answer(request, {"content": CONTENT}))
