"""A reader of GBNF, for these tests alone: says whether a grammar takes a text, and writes texts that it takes."""

import random
import re
import sys
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s*(?:(?P<rule>[a-zA-Z][a-zA-Z0-9-]*)(?P<define>\s*::=)?|(?P<lit>"(?:[^"\\]|\\.)*")|(?P<cls>\[(?:[^\]\\]|\\.)*\])
    |(?P<rep>[*+?]|\{\d+(?:,\d*)?\})|(?P<sym>[|().]))""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        return chr(int(code, 16)) if code else _NAMED.get(match[4], match[4])

    return _ESCAPE.sub(one, text)


@dataclass(eq=False)
class Item:
    kind: str
    value: object
    least: int = 1
    most: int | None = 1


class Gbnf:
    """One grammar, read from its text."""

    def __init__(self, text: str) -> None:
        self.rules: dict[str, Item] = {}
        for line in filter(None, text.split("\n")):
            name, _, body = line.partition("::=")
            assert name.strip() not in self.rules, f"rule {name!r} is defined twice"
            self._tokens = list(_TOKEN.finditer(body))
            assert "".join(m.group() for m in self._tokens).strip() == body.strip(), f"unread text in {line!r}"
            self._at = 0
            self.rules[name.strip()] = self._alternatives()
            assert self._at == len(self._tokens), f"unread tokens in {line!r}"
        for item in list(self.rules.values()):
            self._check(item)

    def _check(self, item: Item) -> None:
        if item.kind == "rule":
            assert item.value in self.rules, f"rule {item.value!r} is used and not defined"
        if item.kind == "either":
            for part in (part for row in item.value for part in row):  # type: ignore[attr-defined]
                self._check(part)

    def _alternatives(self) -> Item:
        rows: list[list[Item]] = [[]]
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token["sym"] == ")":
                break
            self._at += 1
            if token["sym"] == "|":
                rows.append([])
            elif token["rep"]:
                rows[-1][-1].least, rows[-1][-1].most = _bounds(token["rep"])
            else:
                rows[-1].append(self._item(token))
        return Item("either", rows)

    def _item(self, token: re.Match[str]) -> Item:
        if token["sym"] == "(":
            group = self._alternatives()
            self._at += 1
            return group
        if token["sym"] == ".":
            return Item("class", (True, []))
        if token["lit"] is not None:
            return Item("text", _unescape(token["lit"][1:-1]))
        if token["cls"] is not None:
            return Item("class", _class(token["cls"][1:-1]))
        return Item("rule", token["rule"])

    def takes(self, text: str) -> bool:
        """Whether the whole text is one of the grammar's."""
        self._memo: dict[tuple[int, int], frozenset[int]] = {}
        before = sys.getrecursionlimit()
        # A rule that goes on with itself is as deep as the text is long.
        sys.setrecursionlimit(before + 20 * len(text))
        try:
            return len(text) in self._ends(Item("rule", "root"), text, 0)
        finally:
            sys.setrecursionlimit(before)

    def _ends(self, item: Item, text: str, start: int) -> frozenset[int]:
        ends: set[int] = {start} if item.least == 0 else set()
        front = {start}
        count = 0
        while front and (item.most is None or count < item.most):
            front = {end for at in front for end in self._once(item, text, at)} - (
                ends if count >= item.least else set()
            )
            count += 1
            if count >= item.least:
                ends |= front
        return frozenset(ends)

    def _once(self, item: Item, text: str, at: int) -> frozenset[int]:
        key = (id(item), at)
        if key not in self._memo:
            self._memo[key] = self._match(item, text, at)
        return self._memo[key]

    def _match(self, item: Item, text: str, at: int) -> frozenset[int]:
        if item.kind == "text":
            return frozenset({at + len(str(item.value))} if text.startswith(str(item.value), at) else ())
        if item.kind == "class":
            return frozenset({at + 1} if at < len(text) and _in_class(item.value, text[at]) else ())
        if item.kind == "rule":
            return self._ends(self.rules[str(item.value)], text, at)
        found: set[int] = set()
        for row in item.value:  # type: ignore[attr-defined]
            front = {at}
            for part in row:
                front = {end for place in front for end in self._ends(part, text, place)}
            found |= front
        return frozenset(found)

    def sample(self, chance: random.Random) -> str:
        """Write one text; repetitions stay short."""
        return self._write(Item("rule", "root"), chance, 0)

    def _write(self, item: Item, chance: random.Random, depth: int) -> str:
        top = item.least if depth > 40 else item.least + 3 if item.most is None else min(item.least + 3, item.most)
        return "".join(self._write_once(item, chance, depth + 1) for _ in range(chance.randint(item.least, top)))

    def _write_once(self, item: Item, chance: random.Random, depth: int) -> str:
        if item.kind == "text":
            return str(item.value)
        if item.kind == "class":
            return _char(item.value, chance)
        if item.kind == "rule":
            return self._write(self.rules[str(item.value)], chance, depth)
        rows: list[list[Item]] = item.value  # type: ignore[assignment]
        row = rows[0] if depth > 40 else chance.choice(rows)
        return "".join(self._write(part, chance, depth) for part in row)


def _bounds(text: str) -> tuple[int, int | None]:
    if text in "*+?":
        return (1 if text == "+" else 0), (1 if text == "?" else None)
    least, comma, most = text[1:-1].partition(",")
    assert int(most or least) <= 2000, "llama.cpp refuses larger bounds"
    return int(least), (int(most) if most else None) if comma else int(least)


def _class(text: str) -> tuple[bool, list[tuple[str, str]]]:
    negated = text.startswith("^")
    chars = re.findall(r"\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\.|.", text[negated:], re.DOTALL)
    ranges: list[tuple[str, str]] = []
    at = 0
    while at < len(chars):
        low = high = _unescape(chars[at])
        if at + 2 < len(chars) and chars[at + 1] == "-":
            high = _unescape(chars[at + 2])
            at += 2
        ranges.append((low, high))
        at += 1
    return negated, ranges


def _in_class(value: object, char: str) -> bool:
    negated, ranges = value  # type: ignore[misc]
    return any(low <= char <= high for low, high in ranges) != negated


def _char(value: object, chance: random.Random) -> str:
    negated, ranges = value  # type: ignore[misc]
    if not negated:
        low, high = chance.choice(ranges)
        return chr(chance.randint(ord(low), ord(high)))
    while not _in_class(value, char := chr(chance.choice([*range(0x20, 0x7F), 10, 0xE9, 0x4EAC, 0x1F600]))):
        pass
    return char
