"""llama.cpp's own server with one chat template after another: a program for tests, run in a process of its own.

`python tests/template_server.py MODEL` reads paths of templates from stdin, one a line, and answers each with the
address of a server that renders it. The server before it ends. Nothing is computed: the model is a vocabulary.
"""

import os
import sys
from pathlib import Path
from typing import Any

import xllamacpp  # pyright: ignore[reportMissingImports]


def main() -> None:
    """Serve until stdin closes."""
    native: Any = xllamacpp
    address = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = None
    for line in sys.stdin:
        params = native.CommonParams()
        params.model.path = sys.argv[1]
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.n_ctx = 8192
        params.n_parallel = 1
        params.cpuparams.n_threads = 1
        params.cpuparams_batch.n_threads = 1
        params.warmup = False
        params.verbosity = 0
        params.use_jinja = True
        params.cache_ram_mib = 0
        # A conversation may end with a turn of the model.
        params.prefill_assistant = False
        params.chat_template = Path(line.strip()).read_text()
        del server
        server = native.Server(params)
        print(server.listening_address, file=address, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
