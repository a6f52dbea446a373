"""Text without a closing marker in it, to GBNF: the exact complement of an Aho-Corasick automaton.

There is a rule for each state; each may end, and a character that would complete a marker has no alternative. Where
characters are counted, there is a rule for each state and count.
"""

from collections.abc import Iterator

from gateway.toolcalls.grammar.gbnf import Grammar

MAX_STATES = 1_000
"""Most rules for one text. A count that would take more is left out, or made smaller."""

_NUL = r"\u0000"


def text_without(
    g: Grammar, markers: tuple[str, ...], *, least: int = 0, most: int | None = None, not_first: str = ""
) -> str:
    """Return the expression for texts of `least` to `most` characters without the markers in them.

    `not_first`: characters with which a text can't begin.
    """
    key = ("until", markers, least, most, not_first)
    return g.once(key, lambda: _Text(g, markers, least, most, not_first).written())


class _Text:
    """One automaton written as rules. A state is the longest end of the text that is the beginning of a marker."""

    def __init__(self, g: Grammar, markers: tuple[str, ...], least: int, most: int | None, not_first: str) -> None:
        self._g = g
        self._markers = markers
        self._states = {text[:length] for text in markers for length in range(len(text))}
        self._alphabet = sorted(set("".join(markers)))
        room = MAX_STATES // len(self._states)
        self._most = most if most is not None and most <= room else None
        self._least = min(least, room if self._most is None else self._most)
        self._not_first = not_first
        self._rules: dict[tuple[str, int], str] = {}

    def written(self) -> str:
        """Write the rules and return the name of the first."""
        if self._most == 0:
            return ""
        first = self._rule("", 0)
        done = 0
        while done < len(self._rules):
            (state, count), name = list(self._rules.items())[done]
            steps = f"({' | '.join(self._steps(state, count))})"
            self._g.define(name, steps if count < self._least else f"{steps}?")
            done += 1
        return first

    def _steps(self, state: str, count: int) -> Iterator[str]:
        barred = self._not_first if not count and not state else ""
        targets = {char: self._target(state + char) for char in self._alphabet if char not in barred}
        named = [char for char, to in targets.items() if to != ""]
        for char in named:
            to = targets[char]
            if to is not None:
                yield self._step(self._g.one_of(char), to, count)
        yield self._step(self._g.none_of(dict.fromkeys((*named, *barred)), _NUL), "", count)

    def _step(self, char: str, state: str, count: int) -> str:
        """Return the expression for a character and what may follow it."""
        after = count + 1 if self._most is not None else min(count + 1, self._least)
        return char if after == self._most else f"{char} {self._rule(state, after)}"

    def _rule(self, state: str, count: int) -> str:
        if (state, count) not in self._rules:
            self._rules[state, count] = self._g.reserve("until")
        return self._rules[state, count]

    def _target(self, text: str) -> str | None:
        """Return the state after `text`; None where it ends with a whole marker."""
        if text.endswith(self._markers):
            return None
        return next(text[start:] for start in range(len(text) + 1) if text[start:] in self._states)
