"""One answer that is remembered: a node of the memory's tree, with what it adds to the answer before it."""

from array import array
from dataclasses import dataclass, field
from typing import Final

from gateway.agent.memory.history import Shown
from gateway.agent.memory.lived import Lived
from gateway.agent.memory.record import AnswerRecord

NO_ENGINE: Final = -1
"""The start of an engine of another process."""


@dataclass(slots=True, eq=False)
class Remembered:
    """One answer, and the conversation that it ended. Frozen in all but its place in the tree."""

    owner: str
    before: "Remembered | None"
    """The answer that its request went on from."""
    place: int
    """Where the answer stands among the client's messages."""
    shown: Shown
    lived: tuple[Lived, ...]
    kept: int
    """Ids that are the beginning of those of `before`."""
    added: "array[int]"
    held: int
    """Ids that the engine has processed."""
    engine: int
    """Which start of the engine that was."""
    number: int
    """Which conversation it belongs to; branches are one."""
    engine_name: str = "engine"
    """Which of the gateway's engines."""
    answer_id: str = ""
    written: int = 0
    """Ids of it that the engine held: all, unless its last turn was cut inside a token."""
    strangers: bytes = b""
    """Of answers before it that are nobody's here (`History.strangers`)."""
    digest: bytes = b""
    model: str | None = None
    """What wrote it; it, its map and the time are None where another replica made the answer."""
    map_id: str | None = None
    made: float | None = None
    """When, by the clock that never goes back."""
    record: AnswerRecord | None = None
    """How it was made; None where nobody looked."""
    followers: int = field(default=0, repr=False)
    size: int = 0

    def chain(self) -> list["Remembered"]:
        """The answers of this conversation, the first one first."""
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
