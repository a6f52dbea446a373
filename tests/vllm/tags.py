"""Every grammar of calls that waits for a token, given to the xgrammar of vLLM's environment: what it takes of them.

Writes each format's structural tag for five sets of tools, one call or several, and token ids that fit it and that do
not; `compile_tags.py` compiles and walks them. It needs `make vllm-install`, and no server.
"""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

from gateway.engine.wire.vllm_json import structured_outputs
from gateway.toolcalls.formats.format import Format, call_grammar, call_triggers
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.schema.spec import ToolSpec
from tests.gateway.toolcalls.fakes import TIME, WORDS, TinyVocabulary
from tests.gateway.toolcalls.gbnf_oracle import Gbnf
from tests.gateway.toolcalls.tool_sets import TOOL_SETS
from tests.vllm.router import FOLDER

END: Final = 999
"""The end of the turn, in the vocabulary of these tags."""
_SAMPLES: Final = 5
_ESCAPES: Final = ToolSpec(
    "\x7fab",
    "",
    {"type": "object", "properties": {"key": {"type": "string", "pattern": "^[-a-f^]{2}$"}}, "required": ["key"]},
)
"""Characters whose escapes engines read differently."""


def tag_of(fmt: Format, tools: tuple[ToolSpec, ...], *, parallel: bool) -> str | None:
    """The structural tag of some tools, where the format's calls begin with a token."""
    vocabulary = TinyVocabulary(fmt.markers)
    grammar = call_grammar(fmt, tools, choice="required", parallel=parallel, vocabulary=vocabulary)
    triggers = call_triggers(fmt, vocabulary)
    return structured_outputs(grammar, triggers)["structural_tag"] if triggers else None


def walks(fmt: Format, tool: ToolSpec, *, parallel: bool) -> Iterator[tuple[list[int], bool]]:
    """Ids, up to the end of the turn, and whether they fit: words, other markers, calls; no call of another name."""
    vocabulary = TinyVocabulary(fmt.markers)
    (trigger,) = call_triggers(fmt, vocabulary)
    others = [each for each in vocabulary.special_tokens.values() if each != trigger.token_id]
    words = [*vocabulary.spell(f"Zürich: {trigger.text}x{trigger.text}"), *others]
    yield [END], True
    yield [*words, END], True
    yield [*words, trigger.token_id, END], False
    written = Gbnf(call_grammar(fmt, [tool], choice="required", parallel=parallel))
    for number in range(_SAMPLES):
        call = written.sample(random.Random(number))
        ids = vocabulary.spell(call, specials=True)
        yield [*words, *ids, END], True
        yield [*ids, *words, END], False
        other = call.replace("get_time", "get_tome")
        yield [*words, *vocabulary.spell(other, specials=True), END], other == call


def entries() -> Iterator[dict[str, Any]]:
    """What is compiled."""
    sets = {**TOOL_SETS, "escapes": (_ESCAPES,), "time": (TIME,)}
    for name, (kind, tools), parallel in product(format_names(), sets.items(), (False, True)):
        fmt = format_named(name)
        tag = tag_of(fmt, tools, parallel=parallel)
        if tag is not None:
            walked = list(walks(fmt, *tools, parallel=parallel)) if len(tools) == 1 else []
            yield {"name": f"{name}, {kind}, {parallel=}", "markers": fmt.markers, "tag": tag, "walks": walked}


def main() -> None:
    """Say what is taken. Raises `CalledProcessError` where a tag is not, or holds something else than is meant."""
    asked = {"end": END, "words": [word.hex() for word in WORDS], "tags": list(entries())}
    program = [str(FOLDER / "venv/bin/python"), str(Path(__file__).with_name("compile_tags.py"))]
    sys.stdout.flush()
    subprocess.run(program, input=json.dumps(asked).encode(), check=True)


if __name__ == "__main__":
    main()
