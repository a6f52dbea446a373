"""A choice of given texts to GBNF: many are written as a tree of their beginnings.

llama.cpp tries every token of the vocabulary against every text that is still possible, so 9,000 that begin alike would
take seconds for each token; in a tree there is one way at each character. Each fork is a rule of its own: nested
parentheses would be as deep as the tree. Pure.
"""

from collections.abc import Iterable
from itertools import takewhile
from typing import Final

from gateway.toolcalls.grammar.gbnf import Grammar

MAX_PLAIN: Final = 32
"""Most texts that are written one after the other."""


def one_of(g: Grammar, texts: Iterable[str]) -> str:
    """Return the expression for any of some texts; "" where there is none."""
    known = list(dict.fromkeys(texts))
    if len(known) <= MAX_PLAIN:
        return g.either(map(g.literal, known))
    known.sort()
    forks = [(root := g.reserve("texts"), known, 0)]
    while forks:
        name, group, at = forks.pop()
        ways: list[str] = []
        for each in _by_character(group, at):
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(each[0], each[-1], strict=False)))
            if len(each) > 1:
                forks.append((rest := g.reserve("texts"), each, shared))
                ways.append(f"{g.literal(each[0][at:shared])} {rest}".strip())
            else:
                ways.append(g.literal(each[0][at:]))
        g.define(name, g.either(ways))
    return root


def _by_character(group: list[str], at: int) -> Iterable[list[str]]:
    """Sorted texts by their character at a place; the one that ends there comes alone."""
    found: dict[str, list[str]] = {}
    for text in group:
        found.setdefault(text[at : at + 1], []).append(text)
    return found.values()
