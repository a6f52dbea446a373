"""One answer that is remembered: a node of the memory's tree, with what it adds to the answer before it."""

from array import array
from dataclasses import dataclass, field
from typing import Final

from gateway.context.memory.defined_tools import NO_TOOLS, DefinedTools
from gateway.context.memory.history import Shown
from gateway.context.memory.kept_result import KeptResult
from gateway.context.memory.lived import Lived
from gateway.context.memory.record import AnswerRecord
from gateway.context.memory.request_figures import RequestFigures

SUMMARY: Final = "summary"
"""Key of a message that stands for an earlier part of its conversation: the text that the gateway wrote for it."""
NO_ENGINE: Final = -1
"""`Remembered.engine` where the engine was another process's."""


@dataclass(slots=True, eq=False)
class Remembered:
    """One answer, and the conversation up to it. Only its place in the tree, its record and its summary may change."""

    owner: str
    before: "Remembered | None"
    """The answer that its request continued from."""
    place: int
    """Where the answer stands among the client's messages."""
    shown: Shown
    lived: tuple[Lived, ...]
    kept: int
    """How many of the first ids of `before` it keeps."""
    added: "array[int]"
    """Ids that follow those."""
    held: int
    """Ids that the engine has processed."""
    engine: int
    """The number of the engine's start that made it (`ReadyEngine.number`)."""
    number: int
    """The conversation that it belongs to; all branches of one have the same number."""
    engine_name: str = "engine"
    """Which of the gateway's engines."""
    answer_id: str = ""
    original_ids: int = 0
    """How many of its ids, from the first, it was made with: all, unless its last turn was cut inside a token."""
    strangers: bytes = b""
    """Digest of answers before it that are not remembered (`History.strangers`)."""
    digest: bytes = b""
    tools: DefinedTools = NO_TOOLS
    """The tools that the prompt defined at its end."""
    results: tuple[KeptResult, ...] = ()
    """Results of its calls and of those before it that were kept, since they were too large for the model."""
    model: str | None = None
    """The model that wrote it; this, the map and the time are None where another replica made the answer."""
    map_id: str | None = None
    made: float | None = None
    """When it was made, by `time.monotonic`."""
    figures: RequestFigures | None = None
    """What its request cost, without words of its client; None where the engine did not say, or another replica made
    it."""
    record: AnswerRecord | None = None
    """How it was made; None where nobody was watching."""
    summary: bytes = b""
    """Digest of the text that stands for the conversation up to it; b"" where it was not summed up."""
    followers: int = field(default=0, repr=False)
    size: int = 0

    def chain(self) -> list["Remembered"]:
        """The answers of this conversation up to this one, the first one first."""
        found: list[Remembered] = []
        node: Remembered | None = self
        while node is not None:
            found.append(node)
            node = node.before
        return found[::-1]

    def ids(self) -> list[int]:
        """All ids that the conversation had at the end of this answer."""
        ids: array[int] = array("I")
        for node in self.chain():
            del ids[node.kept :]
            ids.extend(node.added)
        return ids.tolist()
