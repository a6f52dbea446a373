"""llama.cpp's own server, started for vectors of texts: a program for tests, run in a process of its own.

`python tests/embedding_server.py MODEL` prints its address, and ends when its stdin closes.
"""

import os
import sys
from typing import Any

import xllamacpp  # pyright: ignore[reportMissingImports]


def main() -> None:
    """Serve until stdin closes."""
    native: Any = xllamacpp
    address = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    params = native.CommonParams()
    params.model.path = sys.argv[1]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.verbosity = 0
    params.use_jinja = True
    params.embedding = True
    params.pooling_type = native.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server = native.Server(params)
    print(server.listening_address, file=address, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
