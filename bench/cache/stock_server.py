"""The program of a llama.cpp server as its own command starts it: only the model and its memory are set.

`python -m bench.cache.stock_server SETTINGS` prints its address, and ends when its stdin closes. Settings are JSON:
`model`, `context` (ids of all slots), `cache_mib` (for what slots held before), `threads`, `slots`, and `unified`,
whether the slots share one KV cache: four slots that do are llama-server's default.
"""

import importlib
import json
import os
import sys
from typing import Any


def main() -> None:
    """Serve until stdin closes."""
    settings = json.loads(sys.argv[1])
    address = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    native: Any = importlib.import_module("xllamacpp")
    params = native.CommonParams()
    params.model.path = settings["model"]
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.cache_ram_mib = settings["context"], settings["cache_mib"]
    params.n_parallel, params.kv_unified = settings["slots"], settings.get("unified", True)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.warmup, params.verbosity = False, 0
    server = native.Server(params)
    print(server.listening_address, file=address, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
