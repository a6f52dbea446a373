"""llama.cpp's own server with a context that holds what a coding agent sends: a program, run in a process of its own.

`python long_context_server.py MODEL TEMPLATE` prints its address and serves until stdin closes.
"""

import os
import sys
from pathlib import Path
from typing import Any

import xllamacpp  # pyright: ignore[reportMissingImports]


def main() -> None:
    """Serve."""
    native: Any = xllamacpp
    address = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    params = native.CommonParams()
    params.model.path = sys.argv[1]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 131_072
    params.n_parallel = 2
    params.cpuparams.n_threads = 2
    params.cpuparams_batch.n_threads = 2
    params.warmup = False
    params.verbosity = 0
    params.use_jinja = True
    params.prefill_assistant = False
    params.chat_template = Path(sys.argv[2]).read_text(encoding="utf-8")
    server = native.Server(params)
    print(server.listening_address, file=address, flush=True)
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
