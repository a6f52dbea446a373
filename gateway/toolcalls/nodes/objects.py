"""A call as one JSON object, in the ways in which families write it: which keys it has, and when it can be reported.

The parser accepts `parameters` and other words for `arguments`, an object inside `function`, keys in any order, and
unknown keys; the grammar writes the family's own form.
"""

from gateway.toolcalls.nodes.json import Json, JsonObject, QuotedId
from gateway.toolcalls.nodes.quoted import QuotedName
from gateway.toolcalls.nodes.readers import Lit
from gateway.toolcalls.nodes.record import Field, Record
from gateway.toolcalls.nodes.regions import Call


def call_object(
    name: str = "name", arguments: str = "arguments", id_first: str = "", id_last: str = "", id_shape: str = ""
) -> Call:
    """Return a call that is an object with a name and arguments, and with an id where the family writes one.

    `id_first` or `id_last` is the key of the id, which the grammar writes before or after the others, in the shape
    `id_shape`. Such a call is reported when its id is known or it is over, since an id can't be reported later. Without
    either, the parser ignores an id.
    """
    named = QuotedName(after="id" if id_first or id_last else "")
    others = tuple(key for key in ("arguments", "parameters", "args", "input") if key != arguments)
    fields = (
        Field(tuple(dict.fromkeys((name, "name"))), named, required=False),
        Field((arguments, *others), Json(), required=False),
    )
    nested = Field(("function",), Record(fields), required=False, written=False)
    call_id = Field((id_first or id_last,), QuotedId(id_shape), required=False)
    before, behind = ((call_id,) if key else () for key in (id_first, id_last))
    return Call(Record((*before, *fields, *behind, nested), beside=True))


def bare_object(arguments: str = "parameters") -> Call:
    """Return a call that is an object without a marker: it counts only with a name and arguments and no other keys."""
    named = QuotedName(after="arguments")
    others = tuple(key for key in ("parameters", "arguments") if key != arguments)
    fields = (
        Field(("name",), named, required=False),
        Field((arguments, *others), JsonObject(starts=True), required=False),
    )
    kind = Field(("type",), Lit('"function"'), required=False, written=False)
    nested = Field(("function",), Record(fields, strict=True), required=False, written=False)
    return Call(Record((kind, *fields, nested), strict=True), name_suffices=False)
