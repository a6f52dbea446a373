"""Objects get what they need when they are made: nobody sets the attributes of another one later.

What is allowed is state that one module keeps about each of several things (a slot, a session, a reader's place), in
plain records without methods that rely on it, and attributes of libraries that offer no other way.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "gateway"
RECORDS = {
    # State of one answer, which the modules of the agent and of the context write in turn.
    "agent": {"calls", "conversation", "conversation.spliced", "lived"},
    "context/compose": {"self.spliced"},
    "context/memory/conversation_memory.py": {"before", "node", "node.before"},
    "context/large_result_store.py": {"each", "place", "result"},  # where the ids of each result are now
    # What each slot, and each file of one, holds now.
    "engine/slots/swap_plan.py": {"file", "plan.own"},
    "engine/slots/allocation.py": {"slot"},
    "engine/rendering/template_forms.py": {"known"},
    "engine/slots/slot_save_restore.py": {"plan.own", "slot"},
    "observe/tracing.py": {"traced"},  # what is sent depends on the span that it is made in
    "proxy": {"attempt", "connection", "held", "held.member", "member", "parked", "request", "running"},
    "serve/mcp": {"call.session", "request"},
    # What is gathered from the items of one request.
    "serve/responses": {"asked", "kept", "tools"},
    "toolcalls": {"at", "call", "self._cursor", "self._making()"},
    "engine/wire/connections.py": {"connection"},
}
LIBRARIES = {
    "agent/results/id_slices.py": {"options"},
    "app/process.py": {"server"},
    "cli": {"console"},
    "documentation/pages.py": {"state"},
    "engine/embedded/child_process.py": {"params", "params.cpuparams", "params.cpuparams_batch", "params.model"},
    "observe": {"foreign", "metric"},
    "workers/parent.py": {"admin"},
    "serve/http/client_connection.py": {"running", "self.cycle", "self.server_state"},
}


def set_from_outside() -> set[tuple[str, str]]:
    """Modules, and the objects whose public attributes they set."""
    found: set[tuple[str, str]] = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not node.attr.startswith("_"):
                found.add((str(path.relative_to(ROOT)), ast.unparse(node.value)))
    return {(module, target) for module, target in found if target != "self"}


def allowed(module: str, target: str) -> bool:
    packages = [(package, targets) for group in (RECORDS, LIBRARIES) for package, targets in group.items()]
    return any(f"{module}/".startswith(f"{package}/") and target in targets for package, targets in packages)


def test_no_attribute_is_set_from_outside() -> None:
    assert {each for each in set_from_outside() if not allowed(*each)} == set()


def test_every_exception_is_needed() -> None:
    found = set_from_outside()
    packages = [
        (package, target) for group in (RECORDS, LIBRARIES) for package, targets in group.items() for target in targets
    ]
    needless = [
        (package, target)
        for package, target in packages
        if not any(f"{module}/".startswith(f"{package}/") and target == each for module, each in found)
    ]

    assert needless == []
