"""One tool, `say`: `word` is what stands in the result where a number should."""

import json
import sys

from transport import serve


def told(request):
    word = request["params"]["arguments"]["word"]
    head = f'{{"jsonrpc": "2.0", "id": {json.dumps(request["id"])}, "result": '
    sys.stdout.write(head + f'{{"content": [], "structuredContent": {{"x": {word}}}}}}}\n')
    sys.stdout.flush()


serve(told)
