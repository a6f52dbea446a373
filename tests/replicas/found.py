"""What is asked of a scene, and what it has found."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    calls: int
    clients: int
    seed: int
    shared: bool
    """Whether the replicas of the chat share a store."""


@dataclass
class Found:
    """What came of a scene: for a person, for a file, and what must not be."""

    lines: list[str] = field(default_factory=list[str])
    told: dict[str, Any] = field(default_factory=dict[str, Any])
    faults: list[str] = field(default_factory=list[str])

    def expect(self, what: str, said: object, right: object) -> None:
        """One thing that must be so."""
        self.lines.append(f"  {what}: {said}")
        self.told[what] = said
        if said != right:
            self.faults.append(f"{what}: {said!r}, not {right!r}")
