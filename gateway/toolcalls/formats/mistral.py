"""Mistral: an array of objects with ids (Nemo and before), a name and an id (Small 3.2), a name alone (v11 and later).

All three begin with `[TOOL_CALLS]`, and the parser of each accepts what the others write, since one tokenizer serves
many templates. Ids are nine letters or digits, and the templates refuse a history without them.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.json_nodes import Json
from gateway.toolcalls.nodes.objects import call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, Lit, Marker, Node, Space, Start
from gateway.toolcalls.nodes.regions import CallNode, Calls, MarkedRegion
from gateway.toolcalls.nodes.series import Array, MaybeMissing, OptionalMarker, Variants, unwritten

_OPENER, _ARGS, _ID = "[TOOL_CALLS]", "[ARGS]", Marker("[CALL_ID]")
_NINE = "[a-zA-Z0-9]{9}"
_GIVEN_ID = Seq(_ID, Capture("id", _ARGS, shape=_NINE, also=("{",)))
_TAIL = Seq(Start(), OptionalMarker(_ARGS), Space(), MaybeMissing(Json(), _OPENER))
_ARRAY = Array(call_object(id_last="id", id_shape=_NINE))
_NAMED = CallNode(Seq(Capture("name", _ARGS, also=(_ID.text, "{")), unwritten(_GIVEN_ID), _TAIL))
_NAMED_WITH_ID = CallNode(Seq(Capture("name", _ID.text), _GIVEN_ID, _TAIL))
_THOUGHTS = Seq(Thought("[THINK]", "[/THINK]"), Thought("<think>", "</think>"))


def _region(writes: Node) -> MarkedRegion:
    return MarkedRegion(_OPENER, Space(), Variants(_ARRAY, _NAMED, writes=writes), unwritten(Lit("[/TOOL_CALLS]")))


def _body(region: MarkedRegion) -> Seq:
    return Seq(_THOUGHTS, Prose(region))


_ARRAYS, _WITH_IDS, _NAMES = map(_region, (_ARRAY, _NAMED_WITH_ID, _NAMED))

MISTRAL_NEMO = Format(
    name="mistral_nemo",
    body=_body(_ARRAYS),
    calls=_ARRAYS,
    shape='[TOOL_CALLS][{"name": "TOOL", "arguments": {"KEY": "VALUE"}, "id": "call00000"}]',
    template_has=(_OPENER,),
    template_lacks=(_ARGS,),
)

MISTRAL_SMALL = Format(
    name="mistral_small",
    body=_body(_WITH_IDS),
    calls=Calls(_WITH_IDS),
    shape='[TOOL_CALLS]TOOL[CALL_ID]call00000[ARGS]{"KEY": "VALUE"}',
    template_has=(_OPENER, _ARGS, _ID.text),
)

MISTRAL = Format(
    name="mistral",
    body=_body(_NAMES),
    calls=Calls(_NAMES),
    shape='[TOOL_CALLS]TOOL[ARGS]{"KEY": "VALUE"}',
    template_has=(_OPENER, _ARGS),
    template_lacks=(_ID.text,),
)
