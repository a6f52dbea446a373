"""Lists of Python calls that a model writes without a marker behind text, as `Let me look. [f(city='LA')]`.

Answers also explain such lists, and Python code contains them. A list is a call where it ends the message, no code
stands before it on its line, and each of its calls names a tool of the request and fits the tool's schema. Everything
else stays content. The list is held until its end is known.
"""

import re
from dataclasses import dataclass

from gateway.toolcalls.nodes.combinators import pick
from gateway.toolcalls.nodes.python_call import CallList, PythonCall
from gateway.toolcalls.nodes.readers import Lit, Node, Steps, read_space, take_one
from gateway.toolcalls.nodes.regions import Bare, RegionTooLong
from gateway.toolcalls.nodes.spare import lacks_closer, skip_spare
from gateway.toolcalls.nodes.written_calls import WrittenCall, loaded, report_calls
from gateway.toolcalls.schema.kinds import mapping_of
from gateway.toolcalls.stream.cursor import Cursor

_CALL = PythonCall(known=True, reports=False)
_OPENING = Lit("[")
_CODE = re.compile(r"""(?:[\w)\]}"'`\\/@#]|[=(,{|#][ \t]*|\b(?:return|yield)[ \t]+)\Z""", re.ASCII)
"""What stands before a list that is a part of code."""


@dataclass(frozen=True, slots=True, init=False)
class FinalList(Bare):
    """A list without an opening marker that ends the message, or several; a `closer` may follow each."""

    closer: Node

    def __init__(self, calls: CallList, closer: Node) -> None:
        Bare.__init__(self, "[", calls, closer)
        object.__setattr__(self, "closer", closer)

    def run_after(self, lead: str, at: Cursor) -> Steps:
        """Read the lists; return whether they are calls. If not, what was read is content."""
        if not at.tools or (not lead and _CODE.search(at.calls.said)):
            at.calls.content(lead)
            at.calls.content(at.take(at.position + 1))
            return False
        at.open_region(lead, self.markers)
        found: list[WrittenCall] = []
        try:
            ends = yield from self._read(at, found)
        except RegionTooLong:
            ends = False
        if ends and all(call.fits(at) for call in found):
            return report_calls(at, found)
        at.withdraw_region()
        if found:
            message = f"the answer shows a call of {found[0].name!r}: text follows it, or its arguments don't fit"
            at.calls.abandon("lookalike", message)
        return False

    def _read(self, at: Cursor, found: list[WrittenCall]) -> Steps:
        """Read all lists; return whether the message ends after them."""
        while (yield from pick(at, (_OPENING,))):
            yield from _OPENING.run(at)
            if not (yield from _read_calls(at, found)):
                return False
            yield from self.closer.run(at)
            yield from read_space(at)
        return not at.unread


def _read_calls(at: Cursor, found: list[WrittenCall]) -> Steps:
    """Read the calls of one list, and the bracket that closes it."""
    while True:
        yield from read_space(at)
        if found and take_one(at, "]"):
            # A comma stood before it.
            return True
        at.begin_call()
        if not (yield from _CALL.run(at)):
            return False
        found.append(_written(at))
        yield from read_space(at)
        yield from skip_spare(at, (",", "]"), braces=True)
        if not take_one(at, ","):
            return bool(take_one(at, "]")) or (yield from lacks_closer(at))


def _written(at: Cursor) -> WrittenCall:
    source = at.calls.arguments or "{}"
    try:
        arguments = dict(mapping_of(loaded(source)))
    except (ValueError, RecursionError):
        arguments = None
    return WrittenCall(at.calls.name, arguments, source, at.calls.repaired)
