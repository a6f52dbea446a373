"""What every node of every format holds to: where it can begin, whether it may be missing, and what it writes."""

import random

from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.schemas import schema_rules
from gateway.toolcalls.nodes.readers import Node, walk
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.spelling import Spelling
from tests.cases import each_of
from tests.gateway.toolcalls.fakes import WEATHER
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

PLAIN = Spelling({})


def written(node: Node, tool: ToolSpec) -> list[str]:
    """Texts that a node's grammar writes for a tool."""
    grammar = Grammar([tool], parallel=True, schemas=schema_rules)
    grammar.tool = tool
    reader = Gbnf(grammar.text(node.grammar(grammar)))
    return [reader.sample(random.Random(seed)) for seed in range(8)]


@each_of("name", format_names())
def test_what_a_node_writes_begins_as_the_node_says_and_is_missing_only_where_it_may_be(name: str) -> None:
    fmt = format_named(name)
    for node in {*walk(fmt.body), *walk(fmt.calls)}:
        first = node.first(PLAIN)
        for text in written(node, WEATHER):
            if text and first:
                # Whitespace before a marker that may be missing is read with it.
                assert text.lstrip().startswith(first) or text.startswith(first), node
            assert node.nullable or text or not first, node
