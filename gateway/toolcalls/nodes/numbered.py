"""A call's id that names its tool: `functions.NAME:N`, as Kimi K2 writes it.

The id is reported unchanged, since the model's template writes it again.
"""

import re
from dataclasses import dataclass

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.nodes.readers import First, Node, Steps, is_name, read_until
from gateway.toolcalls.stream.cursor import WHITESPACE, Cursor
from gateway.toolcalls.stream.spelling import Spelling

_NUMBER = re.compile(r"[:_]\d+\Z")


@dataclass(frozen=True, slots=True)
class NumberedName(Node):
    """The id with the name in it, up to a delimiter, which is not read."""

    delimiter: str

    def first(self, spelling: Spelling) -> First:
        """Return None for anything: an unknown tool is a call too."""
        return None

    def run(self, at: Cursor) -> Steps:
        """Hold the id until its delimiter arrives, and report it and the name in it."""
        text = yield from read_until(at, (self.delimiter,))
        call_id = (text or "").strip(WHITESPACE)
        name = _name(call_id, at)
        if not name or not is_name(name, at):
            return False
        at.calls.identify(call_id)
        at.calls.named(name)
        return True

    def grammar(self, g: Grammar) -> str:
        """Write the id with the tool's name in it."""
        return f"{g.literal(f'functions.{g.current.name}:')} [0-9]{{1,2}}"


def _name(call_id: str, at: Cursor) -> str:
    """Return the tool's name: the id without prefix and number, in the spelling that is a tool of the request."""
    plain = _NUMBER.sub("", call_id.removeprefix("functions.")) if ":" in call_id else call_id
    plain = plain.removeprefix("functions.")
    under = plain.removeprefix("functions_")
    spellings = (plain, plain.rpartition(".")[2], under, _NUMBER.sub("", under))
    return next((name for name in spellings if name in at.tools), plain)
