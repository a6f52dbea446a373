"""The program of a llama.cpp server as its own command starts it: `llama-server -m MODEL`, with its defaults.

`python -m codec_demo.plain_server SETTINGS` prints its address, and ends when its stdin closes. Settings are
JSON: `model` and `threads`; where they are not to be llama-server's defaults, `context` (tokens of all slots), `slots`,
`cache_mib` (of the prompt cache in host memory), `unified` (whether the slots share one KV cache) and `template`.
"""

import json
import os
import sys

from gateway.engine.embedded.child_process import load


def main() -> None:
    """Serve until stdin closes."""
    settings = json.loads(sys.argv[1])
    address = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    native = load()
    params = native.CommonParams()
    params.model.path = settings["model"]
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    # llama-server's own defaults: the model's context, 4 slots with one KV cache, 8 GiB of prompt cache.
    params.n_ctx, params.cache_ram_mib = settings.get("context", 0), settings.get("cache_mib", 8192)
    params.n_parallel, params.kv_unified = settings.get("slots", 4), settings.get("unified", True)
    params.warmup, params.verbosity, params.use_jinja = False, 0, True
    if template := settings.get("template"):
        params.chat_template = template
    server = native.Server(params)
    print(server.listening_address, file=address, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
