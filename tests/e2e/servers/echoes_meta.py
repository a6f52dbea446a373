"""One tool, `say`, that answers with the `_meta` of its call as JSON."""

import json

from transport import answer, serve


def show(request):
    text = json.dumps(request["params"].get("_meta", {}))
    answer(request, {"content": [{"type": "text", "text": text}]})


serve(show)
