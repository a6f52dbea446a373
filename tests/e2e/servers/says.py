"""One tool, `say`, whose result is what the command line says: content blocks as JSON."""

import json
import sys

from transport import answer, serve

serve(lambda request: answer(request, {"content": json.loads(sys.argv[1])}))
