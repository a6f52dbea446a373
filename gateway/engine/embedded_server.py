"""The program of the child process in which the embedded llama.cpp server runs.

`python -m gateway.engine.embedded_server SETTINGS` starts the server that the package `xllamacpp` carries, prints one
line with its address on stdout, and ends when its stdin closes, so that it never outlives the gateway. It imports
nothing of ours: a crash of the native code takes down this process only. Above: `embedded.py`, its parent.
"""

import importlib
import json
import os
import sys
from typing import Any


def main() -> None:
    """Serve until stdin closes.

    Settings come as one JSON argument: host, port (0: a free one), model, context, slots, threads. A key that clients
    must send comes in CODEC_ENGINE_KEY, since arguments are for everybody to see.
    """
    settings = json.loads(sys.argv[1])
    # The native code writes its log to fd 1 and 2; the address line keeps a stdout of its own.
    address = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # By name: the package has no types, and importing it takes its time only here.
    native: Any = importlib.import_module("xllamacpp")
    params = native.CommonParams()
    params.model.path = settings["model"]
    params.hostnames = [settings["host"]]
    # Anybody on this machine, and any page in a browser, can reach the port; the key is for the gateway alone.
    if key := os.environ.get("CODEC_ENGINE_KEY"):
        params.api_keys = [key]
    params.port = settings["port"]
    params.n_ctx = settings["context"]
    params.n_parallel = settings["slots"]
    params.cpuparams.n_threads = settings["threads"]
    params.cpuparams_batch.n_threads = settings["threads"]
    params.warmup = False
    params.verbosity = 0
    params.use_jinja = True
    # Prompts move between slots through this cache; our slots are chosen by prefix, and a comparison must stay fair.
    params.cache_ram_mib = 0
    server = native.Server(params)
    print(server.listening_address, file=address, flush=True)
    sys.stdin.buffer.read()
    # The native server joins threads that may be generating; the parent does not wait for that.
    os._exit(0)


if __name__ == "__main__":
    main()
