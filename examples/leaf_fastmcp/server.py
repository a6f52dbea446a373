"""A leaf on fastmcp: one tool, `note`, whose results carry token ids."""

import os
from typing import Literal

from fastmcp import FastMCP

from leaf_sdk import make_meta_tokenizer
from leaf_sdk.serve import make_leaf

NOTES = {"coffee": "Two spoons a cup, water at 93 degrees.", "bread": "Twelve hours of rest, one hour at 230 degrees."}

server = FastMCP("notes")


# Structured output would say everything twice, and a model reads the text.
@server.tool(output_schema=None, annotations={"readOnlyHint": True})
def note(title: Literal["coffee", "bread"] = "coffee") -> str:
    """Read one of the notes"""
    return NOTES[title]


# The one line that makes it a leaf. On fastmcp 2 and 3: server.add_middleware(leaf_middleware(meta)).
make_leaf(server, make_meta_tokenizer(map_path=os.environ["CODEC_MAP_PATH"], map_hash=os.environ["CODEC_MAP_HASH"]))
server.run(show_banner=False)
