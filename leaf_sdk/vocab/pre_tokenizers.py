"""How text is cut into pieces before merges are applied: as a map spells it, as a tokenizer.json does, and as an
object.

A cut is a series of regular expressions, applied in turn. A tokenizer.json spells it as a structure, a Codec map as an
expression or a program (`programs`), a GGUF file as a name (`gguf_names`), and `tokenizers` builds an object from it.
What can't be reproduced exactly is refused by name. Knows nothing of vocabularies.

Sources: Hugging Face `tokenizers`; Codec specification 0.5. `tokenizers` is imported when the first object is built,
so that importing is cheap.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from leaf_sdk.errors import MapUnsupported

from .programs import DIGIT, patterns_of, program_of, single_of

if TYPE_CHECKING:
    from tokenizers import pre_tokenizers as hf

_REST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """A cut at the matches of `pattern`, each match and each gap a piece, after those of `before` have cut in turn."""

    pattern: str
    before: tuple[str, ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        """All expressions, in the order in which they cut."""
        return (*self.before, self.pattern)


GPT2 = PreTokenizer(_GPT2)
SMOLLM = PreTokenizer(_GPT2, before=(DIGIT,))


def from_map(fields: Mapping[str, Any]) -> PreTokenizer:
    """Read the pre-tokenizer of a Codec map: our own stages, a program of version 2, a pattern, a program of version 1.

    A version 1 program is the pattern spelled without a regular expression, so where both are given the pattern is
    enough; a version 2 program says what no single pattern can.

    Raises:
        MapUnsupported: a program with a part that we don't know, or neither a program nor a pattern.
    """
    program: object = fields.get("pre_tokenizer_program")
    pattern: object = fields.get("pre_tokenizer_pattern")
    stages: object = fields.get("x_pre_tokenizer_stages")
    old_program = isinstance(program, dict) and cast("dict[str, Any]", program).get("version") == 1
    if isinstance(stages, list) and stages and all(isinstance(each, str) for each in cast("list[object]", stages)):
        return _of_stages(tuple(cast("list[str]", stages)))
    if isinstance(pattern, str) and (program is None or old_program):
        return PreTokenizer(pattern)
    if program is None:
        raise _unsupported("a byte_level map without a pre-tokenizer", "pre_tokenizer_pattern or pre_tokenizer_program")
    return _of_stages(patterns_of(cast("object", program)))


def to_map(pre_tokenizer: PreTokenizer) -> dict[str, Any]:
    """Spell a pre-tokenizer as the fields of a Codec map: a pattern, else a known program, else our own key.

    A program comes with the pattern that makes the same cuts, if there is one, for readers that don't know programs.
    """
    if not pre_tokenizer.before:
        return {"pre_tokenizer_pattern": pre_tokenizer.pattern}
    program = program_of(pre_tokenizer.stages)
    if program is None:
        return {"x_pre_tokenizer_stages": list(pre_tokenizer.stages)}
    single = single_of(pre_tokenizer.stages)
    return {**({} if single is None else {"pre_tokenizer_pattern": single}), "pre_tokenizer_program": program}


def _of_stages(stages: tuple[str, ...]) -> PreTokenizer:
    return PreTokenizer(stages[-1], before=stages[:-1])


def from_hugging_face(node: object) -> PreTokenizer:
    """Recognise the `pre_tokenizer` of a tokenizer.json: ByteLevel as the last stage, Digits and Splits before it.

    Raises:
        MapUnsupported: another structure, or an option that changes the cut (a prefix space, a merged delimiter).
    """
    stages = stages_of(node)
    names = [stage.get("type") for stage in stages]
    if not stages or names[-1] != "ByteLevel" or stages[-1].get("add_prefix_space") is not False:
        raise _unsupported(f"pre_tokenizer {shape_of(node)}", "ByteLevel without a prefix space as its last stage")
    patterns = [_pattern(stage) for stage in stages[:-1]]
    if stages[-1].get("use_regex", True) is True:
        patterns.append(_GPT2)
    known = [pattern for pattern in patterns if pattern is not None]
    if len(known) != len(patterns) or not known:
        raise _unsupported(f"pre_tokenizer {shape_of(node)}", "stages that isolate digits or a pattern's matches")
    return _of_stages(tuple(known))


def _pattern(stage: Mapping[str, Any]) -> str | None:
    """Return the expression by which a stage isolates, or None if it cuts in another way."""
    if stage.get("type") == "Digits":
        return DIGIT if stage.get("individual_digits") is True else None
    if stage.get("type") != "Split" or not isinstance(stage.get("pattern"), dict):
        return None
    regex = cast("dict[str, Any]", stage["pattern"]).get("Regex")
    if not isinstance(regex, str):
        return None
    # Spelled out, so that a program's expression and a file's are the same text.
    regex = regex.replace("\r", r"\r").replace("\n", r"\n")
    if regex == DIGIT:
        return rf"[{DIGIT}]"  # the library's own Digits knows a few more numerals than its expressions do
    isolated = stage.get("behavior") == "Isolated" and stage.get("invert", False) is False
    # Such a stage drops what is not matched, but these patterns match everything.
    matched = stage.get("behavior") == "Removed" and stage.get("invert") is True and regex.endswith(_REST)
    return regex if isolated or matched else None


def to_tokenizers(pre_tokenizer: PreTokenizer) -> "hf.PreTokenizer":
    """Build the `tokenizers` object. Raises `MapUnsupported`: a pattern that does not compile."""
    from tokenizers import pre_tokenizers

    # GPT-2's pattern is the same cut as a Split by it, in the library's own faster form.
    is_gpt2 = pre_tokenizer.pattern == _GPT2
    patterns = pre_tokenizer.before if is_gpt2 else pre_tokenizer.stages
    return pre_tokenizers.Sequence(
        [*map(_isolating, patterns), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=is_gpt2)]
    )


def _isolating(pattern: str) -> "hf.PreTokenizer":
    from tokenizers import Regex, pre_tokenizers

    if pattern == DIGIT:
        return pre_tokenizers.Digits(individual_digits=True)
    try:
        return pre_tokenizers.Split(Regex(pattern), "isolated")
    except Exception as error:  # the library raises a bare Exception for a pattern that it refuses
        what = f"pre_tokenizer_pattern {pattern!r}"
        raise _unsupported(what, f"a pattern that compiles ({error})") from error


def stages_of(node: object) -> list[dict[str, Any]]:
    """Return a structure's stages, with nested sequences flattened; none if it is not a structure."""
    if not isinstance(node, dict):
        return []
    stage = cast("dict[str, Any]", node)
    if stage.get("type") != "Sequence":
        return [stage]
    inner = next((stage[key] for key in ("pretokenizers", "normalizers", "decoders") if key in stage), None)
    return [each for child in cast("list[object]", inner) for each in stages_of(child)] if inner else []


def shape_of(node: object) -> str:
    """Name a structure in one short line, whatever it contains: it goes into an error message."""
    names = [str(stage.get("type", "?")) for stage in stages_of(node)]
    return (repr(names) if names and names != ["?"] else repr(node))[:200]


def _unsupported(what: str, expected: str) -> MapUnsupported:
    return MapUnsupported(
        f"{what} can't be reproduced exactly, expected {expected}; other ids would be wrong for the model",
        what=what,
    )
