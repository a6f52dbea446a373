"""A grammar as vLLM takes it: in the notation of xgrammar, and one that waits for a token as a structural tag.

Turns GBNF's tokens (`<[id]>`) into xgrammar's (`Token(id)`), and a grammar with triggers into a JSON text that says:
any tokens but those, then the grammar or nothing. The grammar takes its trigger itself. So words before a call are
free, and behind the calls the turn ends, as with llama.cpp's lazy grammars. It sends nothing.

Reference: xgrammar 0.2.8, docs/structural_tag/structural_tag.md, docs/defining_structures/ebnf_grammar.md. What is used
is there since 0.1.33.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from gateway.toolcalls import CallTrigger

_PIECES: Final = re.compile(r'"(?:[^"\\]|\\.)*"|<\[(\d+)\]>|\[(?:[^\]\\]|\\.)*\]', re.DOTALL)
"""A literal, a token, a class: what looks like a token inside of the others is text."""


def structured_outputs(grammar: str, triggers: Sequence[CallTrigger]) -> dict[str, str]:
    """The field `structured_outputs`: what must match `grammar`, from one of `triggers` on where there are any."""
    if not triggers:
        return {"grammar": in_ebnf(grammar)}
    ids = [trigger.token_id for trigger in triggers]
    held: dict[str, Any] = {"type": "grammar", "grammar": in_ebnf(grammar)}
    elements = [{"type": "any_tokens", "exclude_tokens": ids}, {"type": "optional", "content": held}]
    tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}
    return {"structural_tag": json.dumps(tag, ensure_ascii=False)}


def in_ebnf(grammar: str) -> str:
    """The same grammar, with its tokens as xgrammar names them."""
    return _PIECES.sub(_piece, grammar) if "<[" in grammar else grammar


def _piece(found: re.Match[str]) -> str:
    return f"Token({found[1]})" if found[1] is not None else found[0]
