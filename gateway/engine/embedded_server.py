"""The program of the child process in which the embedded llama.cpp server runs.

`python -m gateway.engine.embedded_server SETTINGS` starts the server that the package `xllamacpp` carries, prints one
line with its address on stdout, and ends when its stdin closes, so that it never outlives the gateway. It imports
nothing of ours: a crash of the native code takes down this process only.
"""

import importlib
import json
import os
import sys
from typing import Any


def main() -> None:
    """Serve until stdin closes.

    Settings come as one JSON argument: host, port (0: a free one), model, context, slots, threads; cache_mib for what
    slots held before (0: none, also where it is not said); chosen, whether each request names its slot; slot_files, the
    directory in which slots may be saved; template, a chat template in place of the model's own. A key that clients
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
    params.cache_ram_mib = settings.get("cache_mib", 0)
    if settings.get("chosen", False):
        # Above 1 no slot is ever found similar, so that the cache is looked into for each request; else it is left out
        # where conversations have half of their ids in common, as all have that begin with the same long preamble.
        params.slot_prompt_similarity = 2.0
        # What a slot holds is saved when another conversation takes it. To save idle ones besides gains nothing.
        params.cache_idle_slots = False
    if directory := settings.get("slot_files"):
        # The server joins path and name as they are, and leaves the mode of what it writes to us.
        params.slot_save_path = directory.rstrip("/") + "/"
        os.umask(0o077)
    if template := settings.get("template"):
        params.chat_template = template
    server = native.Server(params)
    print(server.listening_address, file=address, flush=True)
    sys.stdin.buffer.read()
    # The native server joins threads that may be generating; the parent does not wait for that.
    os._exit(0)


if __name__ == "__main__":
    main()
