"""Blocks of a message of Anthropic's API while their texts arrive in pieces. Pure."""

from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha256

from gateway.serve.generation.form import Chunk


@dataclass(slots=True)
class Block:
    """A block of the message, whose text arrives in pieces."""

    head: Chunk
    key: str
    """The key that holds its text; "" for a block without text."""
    delta: str
    """The type of the deltas that carry its text."""
    pieces: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.pieces)


def text_block() -> Block:
    """A block of text."""
    return Block({"type": "text", "text": ""}, "text", "text_delta")


def tool_block(kind: str, call_id: str, name: str) -> Block:
    """A block of a call; its text is the input."""
    no_input: Chunk = {}
    return Block({"type": kind, "id": call_id, "name": name, "input": no_input}, "input", "input_json_delta")


def signature_of(text: str) -> str:
    """The signature that clients keep with a thinking block and send back: a plain hash of its text, no secret."""
    return b64encode(sha256(text.encode("utf-8", "surrogatepass")).digest()).decode()
