"""A grammar in the form that vLLM takes: xgrammar's notation, or a structural tag if it waits for a token.

Turns GBNF's tokens (`<[id]>`) into xgrammar's (`Token(id)`), and a grammar with triggers into a JSON text that says:
any tokens except the triggers, then the grammar or nothing. The grammar includes its trigger. So text before a call is
free, and the turn ends after the calls, as with llama.cpp's lazy grammars. It sends nothing.

Reference: xgrammar 0.2.8, docs/structural_tag/structural_tag.md, docs/defining_structures/ebnf_grammar.md. All that is
used has existed since 0.1.33.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from gateway.toolcalls.formats.format import CallTrigger

_PIECES: Final = re.compile(r'"(?:[^"\\]|\\.)*"|<\[(\d+)\]>|\[(?:[^\]\\]|\\.)*\]', re.DOTALL)
"""A literal, a token, or a character class: what looks like a token inside the other two is text."""


def structured_outputs(grammar: str, triggers: Sequence[CallTrigger]) -> dict[str, str]:
    """The field `structured_outputs`: the output must match `grammar`, from one of `triggers` on if there are any."""
    if not triggers:
        return {"grammar": in_ebnf(grammar)}
    ids = [trigger.token_id for trigger in triggers]
    held: dict[str, Any] = {"type": "grammar", "grammar": in_ebnf(grammar)}
    elements = [{"type": "any_tokens", "exclude_tokens": ids}, {"type": "optional", "content": held}]
    tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}
    return {"structural_tag": json.dumps(tag, ensure_ascii=False)}


def in_ebnf(grammar: str) -> str:
    """The same grammar, with its tokens in xgrammar's notation."""
    return _PIECES.sub(_piece, grammar) if "<[" in grammar else grammar


def _piece(found: re.Match[str]) -> str:
    return f"Token({found[1]})" if found[1] is not None else found[0]
