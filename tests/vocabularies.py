"""Models that are a vocabulary alone, and real llama.cpp servers of them with one chat template after another."""

import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from leaf_sdk.testing.gguf import gguf_model
from leaf_sdk.vocab.byte_level import ALPHABET

_PROGRAM = Path(__file__).parent / "template_server.py"


def vocabulary_model(added: Sequence[str], types: Sequence[int], begin: str, end: str) -> bytes:
    """Return a model file whose tokens are every byte, `he`, and these, with their types."""
    tokens = [*ALPHABET, "he", *added]
    pairs = {
        "llama.context_length": 8192,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - len(types)) + list(types),
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.bos_token_id": tokens.index(begin),
        "tokenizer.ggml.eos_token_id": tokens.index(end),
        "tokenizer.ggml.add_bos_token": False,
    }
    return gguf_model(pairs)


@contextmanager
def template_server(model: Path) -> Iterator[Callable[[Path], str]]:
    """Yield what returns the address of a server with a chat template's file; it ends with the next one asked."""
    command = [sys.executable, str(_PROGRAM), str(model)]
    children: list[subprocess.Popen[bytes]] = []

    def ask(path: Path) -> str | None:
        stdin, stdout = children[-1].stdin, children[-1].stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{path}\n".encode())
        stdin.flush()
        # Ending the server before may hang for ever, inside llama.cpp.
        ready, _, _ = select.select([stdout], [], [], 60)
        return stdout.readline().decode().strip() if ready else None

    with ExitStack() as stack:

        def start() -> None:
            pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
            child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere)
            children.append(stack.enter_context(child))
            stack.callback(child.kill)

        def serve(path: Path) -> str:
            address = ask(path)
            if address is None:
                children[-1].kill()
                start()
                address = ask(path)
            assert address, "the template server gives no address"
            return address

        start()
        yield serve
