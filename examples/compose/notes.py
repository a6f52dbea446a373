"""A leaf over Streamable HTTP: `notes.py HOST:PORT`, with the map that the environment names."""

import os
import sys
from typing import Literal

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

from leaf_sdk import make_meta_tokenizer
from leaf_sdk.serve import make_leaf

NOTES = {"coffee": "Two spoons a cup, water at 93 degrees.", "bread": "Twelve hours of rest, one hour at 230 degrees."}

server = MCPServer("notes", log_level="WARNING")


@server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True))
def note(title: Literal["coffee", "bread"] = "coffee") -> str:
    """Read one of the notes"""
    return NOTES[title]


make_leaf(server, make_meta_tokenizer(map_path=os.environ["CODEC_MAP_PATH"], map_hash=os.environ["CODEC_MAP_HASH"]))
host, _, port = sys.argv[1].rpartition(":")
server.run("streamable-http", host=host, port=int(port))
