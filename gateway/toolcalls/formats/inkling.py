"""Inkling: blocks of several kinds; each call is one block with a JSON object of `name` and `args`.

Thinking, text and calls may come in any order. The prompt opens the first block.
"""

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.nodes.message_blocks import END, INVOKE, MODEL, NAMED_CALL, TEXT, Inkling
from gateway.toolcalls.nodes.readers import Lit
from gateway.toolcalls.nodes.regions import Calls

INKLING = Format(
    name="inkling",
    body=Inkling(),
    calls=Calls(NAMED_CALL, Lit(MODEL)),
    shape=f'TOOL{INVOKE}{{"name": "TOOL", "args": {{"KEY": "VALUE"}}}}{END}',
    answer=TEXT,
    template_has=(INVOKE,),
)
