"""An answer that must have a form: a JSON object, a schema's value, or a given text; the grammar that holds it to it.

Reasoning comes first where the format has any. Where tools may be called, there may be a call instead of an answer. An
answer that the grammar accepts always fits the schema: a schema for which this can't be guaranteed is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from gateway.errors import RequestInvalid
from gateway.toolcalls.formats.format import Format, marker_ids, reasoning_rules
from gateway.toolcalls.grammar.exact import exact_rules
from gateway.toolcalls.grammar.gbnf import Grammar, one_of
from gateway.toolcalls.grammar.patterns import PlainText, pattern_rules
from gateway.toolcalls.grammar.schemas import schema_rules, shared
from gateway.toolcalls.grammar.supported_keywords import NotHeld, refuse
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.spelling import Vocabulary


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form of an answer's text; `of_schema` makes one from a schema."""

    schema: Mapping[str, Any] | None = None
    """A JSON Schema that a grammar is known to express exactly; None: any JSON object."""
    bare: bool = False
    """Whether the answer is the string itself, unquoted; the schema then has an `enum` or a whole `pattern`."""

    @classmethod
    def of_schema(cls, schema: object, param: str, *, bare: bool = False) -> "AnswerForm":
        """Return the form for a schema that a client sent as `param`. Raises `RequestInvalid` with the reason."""
        # Imported late, as in `validate_call`: it is not needed unless a form is asked for.
        from gateway.toolcalls.schema.schema_check import flaw

        if not isinstance(schema, Mapping):
            raise RequestInvalid(f"{param}: expected a JSON Schema that is an object", param=param)
        known = cast("Mapping[str, Any]", schema)
        # As JSON first where the quotes are left out: the rules of schemas know what no grammar holds.
        forms = [cls(known), cls(known, bare)] if bare else [cls(known)]
        if wrong := flaw(known):
            raise RequestInvalid(f"{param} can't be used as a JSON Schema: {wrong}", param=param)
        try:
            for form in forms:
                form.rules(Grammar((), parallel=False, schemas=schema_rules))
        except NotHeld as error:
            raise RequestInvalid(f"{param}: an answer can't be held to this schema: {error}", param=param) from error
        return forms[-1]

    def rules(self, g: Grammar) -> str:
        """Return the expression for such an answer. Raises `NotHeld`."""
        if self.schema is None:
            return shared(g, "object")
        return _bare_text(g, self.schema) if self.bare else exact_rules(g, self.schema, "answer")

    @property
    def grammar(self) -> str:
        """The GBNF for such an answer where there is neither a format nor a tool."""
        g = Grammar((), parallel=False, schemas=schema_rules)
        return g.text(self.rules(g))


def _bare_text(g: Grammar, schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return one_of(g, schema["enum"])
    return pattern_rules(g, schema["pattern"], PlainText("")) or refuse("the pattern is too complex for a grammar")


def answer_grammar(
    fmt: Format,
    form: AnswerForm,
    tools: Sequence[ToolSpec],
    *,
    parallel: bool,
    prompt_tail: str,
    vocabulary: Vocabulary | None = None,
    template: str | None = None,
) -> str:
    """Return the GBNF with which a model writes an answer of this form, or calls tools if there are any.

    `vocabulary`: as for `call_grammar`. `template`: the model's chat template, which shows whether it reasons. Raises
    `NotHeld`.
    """
    g = Grammar(tools, parallel=parallel, schemas=schema_rules, tokens=marker_ids(fmt, vocabulary))
    # First, since the sum of a grammar's counts is bounded: what exceeds it should be the tools', not the answer's.
    answer = " ".join(filter(None, (g.markup(fmt.answer), form.rules(g))))
    reasoning = reasoning_rules(fmt, g, prompt_tail, template)
    ways = g.either([f"({answer})", f"({fmt.calls.grammar(g)})"]) if tools else answer
    return g.text(f"{reasoning} {ways}".strip())
