"""An answer that must have a form: any JSON object, or a value of a schema; and the grammar that holds a model to it.

Reasoning comes first where the format has any. Where tools may be called, a call may come in the answer's place. What
the grammar takes as an answer fits the schema, always: a schema of which that can't be said is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from gateway.errors import RequestInvalid
from gateway.toolcalls.formats.format import Format, reasoning_rules
from gateway.toolcalls.grammar.exact import exact_rules
from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.held import NotHeld
from gateway.toolcalls.grammar.schemas import schema_rules
from gateway.toolcalls.grammar.shared_rules import shared
from gateway.toolcalls.schema.spec import ToolSpec


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form of an answer's text; `of_schema` makes one of a schema."""

    schema: Mapping[str, Any] | None = None
    """A JSON Schema of which it is known that a grammar can say it; None: any JSON object."""

    @classmethod
    def of_schema(cls, schema: object, param: str) -> "AnswerForm":
        """Give the form of a schema that a client sent as `param`. Raises `RequestInvalid` with the reason."""
        # As in `validate_call`: who asks for no form need not load it.
        from gateway.toolcalls.schema.check import flaw

        if not isinstance(schema, Mapping):
            raise RequestInvalid(f"{param}: expected a JSON Schema, an object", param=param)
        form = cls(cast("Mapping[str, Any]", schema))
        if wrong := flaw(form.schema):
            raise RequestInvalid(f"{param} is no JSON Schema that is read here: {wrong}", param=param)
        try:
            form.rules(Grammar((), parallel=False, schemas=schema_rules))
        except NotHeld as error:
            raise RequestInvalid(f"{param}: answers can't be held to this schema: {error}", param=param) from error
        return form

    def rules(self, g: Grammar) -> str:
        """Give the expression for such an answer. Raises `NotHeld`."""
        return shared(g, "object") if self.schema is None else exact_rules(g, self.schema, "answer")


def answer_grammar(
    fmt: Format,
    form: AnswerForm,
    tools: Sequence[ToolSpec],
    *,
    parallel: bool,
    prompt_tail: str,
    template: str | None = None,
) -> str:
    """Give the GBNF under which a model writes an answer of this form, or calls tools if there are any.

    `template`: the model's, which says whether it reasons. Raises `NotHeld`.
    """
    g = Grammar(tools, parallel=parallel, schemas=schema_rules)
    # First, since the counts of a grammar have a bound together: what is over it is a tool's.
    answer = " ".join(filter(None, (g.markup(fmt.answer), form.rules(g))))
    reasoning = reasoning_rules(fmt, g, prompt_tail, template)
    ways = g.either([f"({answer})", f"({fmt.calls.grammar(g)})"]) if tools else answer
    return g.text(f"{reasoning} {ways}".strip())
