"""A leaf with ids of the two maps that the command line names by their files; its text is long enough to pack well."""

import sys
from pathlib import Path

from mcp.server import MCPServer

from leaf_sdk import MapPin, make_meta_tokenizer
from leaf_sdk.serve import make_leaf
from leaf_sdk.vocab import map_digest

server = MCPServer("two")


@server.tool()
def say() -> str:
    """Say something."""
    return "hello world"


pins = [MapPin(map_digest(Path(path).read_bytes()), path=path) for path in sys.argv[1:]]
make_leaf(server, make_meta_tokenizer(maps=pins))
server.run("stdio")
