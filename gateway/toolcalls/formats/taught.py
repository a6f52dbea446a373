"""The format that a chat template's own text teaches: calls as JSON objects, bare, in a list, or between two tags.

For templates of no known family that do render tools: the text that shows the model a call shows it to us too. Turns
the first such object into a format; knows only one shape, a `name` and then its `arguments` or `parameters`. A call
that the template's code assembles from pieces is not read.
"""

import json
import re
from dataclasses import replace
from functools import lru_cache

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.llama import JSON
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.objects import bare_object, call_object
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Space
from gateway.toolcalls.nodes.regions import Bare, Calls, Region
from gateway.toolcalls.nodes.series import Array, OptionalMarker, Series, Variants

NAME = "template"
"""The name of such a format."""

_OBJECT = re.compile(
    r'(?P<opener><[^<>/\s]{1,40}>)?\s*(?P<list>\[?)\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?'
    r'"name"\s*:\s*[^{}:,]{1,80},\s*"(?P<arguments>arguments|parameters)"\s*:'
)
_CLOSES_WITHIN = 400
"""Most characters between an object and the closing tag around it."""


@lru_cache(maxsize=8)
def taught_format(jinja_text: str) -> Format | None:
    """Return the format of the calls that a chat template's text shows; None where it shows none."""
    text = plain_text(jinja_text)
    found = _OBJECT.search(text)
    if found is None:
        return None
    arguments, listed = found["arguments"], bool(found["list"])
    opener = found["opener"] or ""
    closer = f"</{opener[1:]}"
    if opener and closer in text[found.end() : found.end() + _CLOSES_WITHIN]:
        return _between(opener, closer, arguments, listed=listed)
    return _bare(arguments, listed=listed)


def plain_text(jinja_text: str) -> str:
    """Return a template's text with the escapes of its Jinja strings, for quotes and newlines, undone."""
    return jinja_text.replace('\\"', '"').replace("\\n", "\n")


def _shape(arguments: str, *, listed: bool) -> str:
    shape = f'{{"name": "TOOL", {json.dumps(arguments)}: {{"KEY": "VALUE"}}}}'
    return f"[{shape}]" if listed else shape


def _between(opener: str, closer: str, arguments: str, *, listed: bool) -> Format:
    call = call_object(arguments=arguments)
    array = Array(call)
    region = Region(
        opener, Space("\n"), Variants(array, writes=array if listed else call), OptionalMarker(closer, lead="\n")
    )
    return Format(
        name=NAME,
        body=Seq(Thought("<think>", "</think>", regions=(region,)), Prose(region)),
        calls=region if listed else Calls(region, Space("\n")),
        shape=f"{opener}\n{_shape(arguments, listed=listed)}\n{closer}",
    )


def _bare(arguments: str, *, listed: bool) -> Format:
    call = bare_object(arguments)
    calls = Bare("[", Array(call)) if listed else Bare("{", Series(call, "; "))
    return replace(JSON, name=NAME, calls=calls, shape=_shape(arguments, listed=listed), template_or=())
