"""Structural tags in, on standard input; what xgrammar makes of them out. Run by the Python of vLLM's own environment.

See `tags.py`, which writes them. The vocabulary is that of `TinyVocabulary`: bytes, words, and a format's markers from
1000 on.
"""

import json
import sys
from importlib.metadata import version
from typing import Any

import xgrammar


def compiler(asked: dict[str, Any], markers: list[str]) -> xgrammar.GrammarCompiler:
    """A compiler for the vocabulary of one format."""
    tokens = [*(bytes([byte]) for byte in range(256)), *(bytes.fromhex(word) for word in asked["words"])]
    tokens += [b""] * (1000 - len(tokens))
    tokens += [marker.encode() for marker in markers]
    about = xgrammar.TokenizerInfo(tokens, xgrammar.VocabType.RAW, stop_token_ids=[asked["end"]])
    return xgrammar.GrammarCompiler(about, max_threads=1)


def fits(compiled: xgrammar.CompiledGrammar, ids: list[int]) -> bool:
    """Whether ids are taken one by one, by the mask that the sampler would have."""
    matcher = xgrammar.GrammarMatcher(compiled)
    mask = xgrammar.allocate_token_bitmask(1, compiled.tokenizer_info.vocab_size)
    for token_id in ids:
        matcher.fill_next_token_bitmask(mask)
        allowed = bool(mask[0, token_id // 32] >> (token_id % 32) & 1)
        if allowed != matcher.accept_token(token_id):
            raise SystemExit(f"the mask and the matcher disagree about {token_id}")
        if not allowed:
            return False
    return matcher.is_terminated()


def main() -> int:
    """Compile and walk all of them."""
    asked = json.load(sys.stdin)
    walked, faults = 0, []
    for entry in asked["tags"]:
        try:
            compiled = compiler(asked, entry["markers"]).compile_structural_tag(entry["tag"])
        except Exception as error:
            faults.append(f"{entry['name']}: {error!s:.300}")
            continue
        for ids, meant in entry["walks"]:
            walked += 1
            if fits(compiled, ids) != meant:
                faults.append(f"{entry['name']}: {'not ' * meant}taken: {ids}")
    told = f"{len(asked['tags'])}, {walked} walks, {len(faults)} faults (xgrammar {version('xgrammar')})"
    sys.stdout.write("".join(f"{fault}\n" for fault in faults) + f"{'structural tags':58} {told}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
