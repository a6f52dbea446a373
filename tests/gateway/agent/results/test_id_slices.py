"""Slices of ids: each is a run of the whole's ids, and holds what was asked for."""

import json
from array import array
from collections.abc import Iterator
from typing import Any

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.results.id_slices import Found, SpelledIds, SpelledPart, find, fitting
from gateway.agent.results.large_results import ResultBeginning, Selection
from gateway.context.memory import KeptResult
from leaf_sdk.testing import tiny_map
from leaf_sdk.vocab import TokenMap
from tests.cases import each_of

TINY = tiny_map()
TEXTS = st.text(st.sampled_from("ab the\n\n,é日😀\u0301{}"), min_size=1, max_size=300)


def kept(ids: list[int], *, leaf: int = 0) -> KeptResult:
    sources = (("leaf", leaf), ("shim", len(ids)))
    return KeptResult("r_222222", "a", "up__say", TINY.map_id, len(ids), sources, b"", "text")


@given(TEXTS, st.data())
def test_part_is_the_smallest_run_of_whole_ids_and_characters_around_its_bytes(text, data):
    ids = TINY.encode(text)
    spelled = SpelledIds(ids, TINY)
    start = data.draw(st.integers(0, len(spelled.text) - 1))
    end = data.draw(st.integers(start + 1, len(spelled.text)))
    part = spelled.part(start, end)

    first, last = spelled.byte_of(part.first), spelled.byte_of(part.last)
    assert first <= start < end <= last
    assert TINY.decode_bytes(ids[part.first : part.last]) == text.encode()[first:last]
    text.encode()[first:last].decode()
    assert part.line == text.encode()[:first].count(b"\n") + 1
    # The ids at both ends are needed: for the bytes, or for the characters of these.
    assert spelled.byte_of(part.first + 1) > max(start - 4, 0)
    assert spelled.byte_of(part.last - 1) < min(end + 4, len(spelled.text))


@given(TEXTS, st.data())
def test_lines_are_those_of_the_text(text, data):
    lines = text.split("\n")
    first = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(first, len(lines) + 2))
    spelled = SpelledIds(TINY.encode(text), TINY)
    places = spelled.lines(first, last)

    wanted = "\n".join(lines[first - 1 : last]).encode()
    if places is None:
        assert not wanted
    else:
        assert spelled.text[slice(*places)] == (wanted or b"\n")


def test_lines_behind_the_end_are_none():
    spelled = SpelledIds(TINY.encode("a\nb\n"), TINY)
    assert spelled.lines(3, 3) is None
    assert spelled.lines(9, 9) is None


@given(TEXTS, st.integers(0, 400))
def test_what_fits_is_a_beginning_of_whole_characters(text, most):
    ids = TINY.encode(text)
    shown = fitting(ids, most, TINY)
    assert ids[: len(shown)] == list(shown)
    assert len(shown) <= most
    TINY.decode_bytes(shown).decode()


@given(TEXTS.map(lambda text: text * 20), st.integers(300, 600), st.integers(0, 50))
def test_beginning_has_no_more_ids_than_may_be_shown_and_counts_its_own(text, most, leaf):
    ids = TINY.encode(text)
    if len(ids) <= most:
        return
    pieces, shown = ResultBeginning(kept(ids, leaf=leaf), tuple(ids[:most]), ()).pieces(most, TINY)
    found = [token_id for piece in pieces for token_id in piece.ids]
    assert len(found) <= most
    assert found[:shown] == ids[:shown]
    assert f"the first {shown} of {len(ids)} tokens" in TINY.decode(found[shown:])
    assert sum(len(piece.ids) for piece in pieces if piece.source == "leaf") == min(leaf, shown)


class SeenTuple(tuple[Any, ...]):
    """Counts how often an item of it is looked at."""

    seen = 0

    def __getitem__(self, key: Any) -> Any:
        self.seen += 1
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        self.seen += len(self)
        return super().__iter__()


def test_what_is_shown_of_many_blocks_does_not_look_at_all_of_them():
    ids = array("I", TINY.encode("a b")) * 10_000
    count = len(ids) // 10_000
    sources = SeenTuple(("leaf" if n % 2 else "shim", (n + 1) * count) for n in range(10_000))
    result = KeptResult("r_222222", "a", "up__say", TINY.map_id, len(ids), sources, b"", "text")
    found = find(SpelledIds(ids, TINY), "a", is_regex=False, offset=len(ids) // 2)
    pieces = Selection(result, ids, found.parts, found.count, "search").pieces(2000, TINY)

    assert {piece.source for piece in pieces} == {"leaf", "shim"}
    assert sources.seen < 5000


@given(TEXTS.map(lambda text: text * 10), st.integers(250, 500), st.sampled_from("abé日{"))
def test_found_places_are_shown_within_the_limit_as_exact_slices(text, most, words):
    ids = TINY.encode(text)
    found = find(SpelledIds(ids, TINY), words, is_regex=False)
    parts = found.parts
    assert found.is_whole
    assert bool(found.count) == bool(parts)
    if not parts:
        assert words.lower() not in text.lower()
        return
    for part in parts:
        assert words in TINY.decode(ids[part.first : part.last]).lower()
    pieces = Selection(kept(ids), array("I", ids), parts, found.count, "search").pieces(most, TINY)
    assert sum(len(piece.ids) for piece in pieces) <= most


def test_real_tokenizer_slices_are_exact(model_map: TokenMap):
    text = "\n".join(f"{n}: Größe {n * 7919} 日本 😀" for n in range(3000))
    ids = model_map.encode(text)
    spelled = SpelledIds(ids, model_map)
    for start in range(0, len(spelled.text) - 50, 997):
        part = spelled.part(start, start + 50)
        first, last = spelled.byte_of(part.first), spelled.byte_of(part.last)
        assert model_map.decode_bytes(ids[part.first : part.last]) == text.encode()[first:last]


@each_of(
    ("words", "is_regex", "lines"),
    [
        ("ERROR", False, [2, 4]),
        ("a.b", False, []),
        ("^error", True, [2]),
        ("time.*out", True, [4]),
        (r"\d{3}", True, [5]),
        ("error$", True, [4]),
        ("Größe", False, [6]),
        ("GRÖSSE", False, []),
        ("größe", False, [6]),
    ],
)
def test_search_finds_lines(words, is_regex, lines):
    text = "fine\nerror one\nacb\ntime is out: error\n404\nGröße"
    found = find(SpelledIds(TINY.encode(text), TINY), words, is_regex=is_regex)
    assert [part.line for part in found.parts] == lines
    assert found.count == len(lines)


def test_place_in_a_long_line_is_shown_with_what_is_near_it():
    text = "x" * 50_000 + "needle" + "y" * 50_000
    ids = TINY.encode(text)
    (part,) = find(SpelledIds(ids, TINY), "needle", is_regex=False).parts
    shown = TINY.decode(ids[part.first : part.last])
    assert "needle" in shown
    assert len(shown) < 500


@pytest.mark.parametrize("words", ["", "a" * 501, "(", r"(a)\1", "(?<=a)b", "((a?){100}){100}"])
def test_expressions_that_cannot_be_used_are_refused(words):
    with pytest.raises(ValueError, match=r"can't be used|expected 1 to 500|too complex"):
        find(SpelledIds(TINY.encode("ab" * 500_000), TINY), words, is_regex=True)


def test_expression_that_backtracks_elsewhere_takes_linear_steps():
    """With Python's own engine this would not end."""
    spelled = SpelledIds(TINY.encode("a" * 100_000), TINY)
    assert find(spelled, "(a|aa)+$x", is_regex=True) == Found((), 0, is_whole=True, is_split=True)


@pytest.mark.parametrize("words", ["a*", "^", "$", "x?", r"\b"])
def test_expression_that_matches_nothing_much_ends(words):
    found = find(SpelledIds(TINY.encode("abc\n\n\nde"), TINY), words, is_regex=True)
    assert len(found.parts) == found.count > 0


@pytest.mark.parametrize("words", ["x*", "$", "^", "()", "a*"])
def test_line_is_found_once_by_an_expression_that_may_match_nothing(words):
    found = find(SpelledIds(TINY.encode("aaa\nbbb\n\nccc\n"), TINY), words, is_regex=True)
    assert [part.line for part in found.parts] == [1, 2, 3, 4]
    assert found.count == 4


def test_line_end_at_the_end_begins_no_line():
    assert SpelledIds(TINY.encode("a\nb\n"), TINY).line_count == 2
    assert SpelledIds(TINY.encode("a\nb"), TINY).line_count == 2


@each_of("before", range(7000, 9500, 97))
@each_of("line", ["", "\n"])
def test_long_words_are_found_wherever_the_windows_of_the_search_meet(before, line):
    words = "é" * 240 + line + "è" * 250
    text = "x" * before + words + "y" * 9000
    assert find(SpelledIds(TINY.encode(text), TINY), words.upper(), is_regex=False).count == 1


def test_line_of_some_kilobytes_is_seen_as_a_whole_by_an_expression():
    text = "".join(f"row {n} {'y' * 7000} end{n}\n" for n in range(20))
    found = find(SpelledIds(TINY.encode(text), TINY), r"^row \d+ .*end\d+$", is_regex=True)
    assert (found.count, found.is_split) == (20, False)


@each_of("before", range(0, 9000, 997))
def test_search_says_whether_an_expression_saw_only_parts_of_a_line(before):
    text = "a\n" * (before // 2) + "id=7 " + "x" * 9000 + " failed\n" + "a\n" * 5000
    found = find(SpelledIds(TINY.encode(text), TINY), "id=7.*failed", is_regex=True)
    assert (found.count, found.is_split) == (0, True)


@each_of("words", ["Zürich", 'said "hi"', "hi\nand", 'Zürich "😀'])
@each_of("ascii_only", [True, False])
def test_words_are_found_where_json_escapes_them(words, ascii_only):
    text = json.dumps(
        [{"city": "Zürich", "said": 'He said "hi", hi\nand', "at": 'Zürich "😀'}], ensure_ascii=ascii_only
    )
    assert find(SpelledIds(TINY.encode(text), TINY), words, is_regex=False).count >= 1


def test_search_goes_on_from_a_token():
    ids = TINY.encode("one\ntwo\none\n")
    spelled = SpelledIds(ids, TINY)
    first, second = find(spelled, "one", is_regex=False).parts
    assert find(spelled, "one", is_regex=False, offset=first.last).parts == (second,)


@given(st.integers(7000, 9500), st.sampled_from(["", "\n"]))
def test_place_is_found_once_wherever_the_windows_of_the_search_meet(before, separator):
    text = separator.join("x" for _ in range(before)) + "nee\ndle" + "y" * 20_000
    found = find(SpelledIds(TINY.encode(text), TINY), r"nee\ndle", is_regex=True)
    assert (found.count, found.is_whole) == (1, True)


def test_lines_begin_and_end_where_the_text_has_them_and_not_where_a_window_does():
    text = "x" * 30_000 + "\nx"
    assert find(SpelledIds(TINY.encode(text), TINY), "^x", is_regex=True).count == 2
    assert find(SpelledIds(TINY.encode(text), TINY), "x$", is_regex=True).count == 2


def test_search_that_takes_too_many_steps_ends_and_says_so():
    """Each of its places is found only after all that follows in the window was seen."""
    spelled = SpelledIds(TINY.encode("a\n" * 10_000), TINY)
    found = find(spelled, "a((.|\n){0,500}z)?", is_regex=True)
    assert 0 < found.count < 1000
    assert not found.is_whole


def test_most_places_are_counted_and_the_first_are_shown():
    spelled = SpelledIds(TINY.encode("a\n" * 3000), TINY)
    found = find(spelled, "a", is_regex=False)
    assert (len(found.parts), found.count, found.is_whole) == (100, 1000, False)
    pieces = Selection(kept([1] * 9), array("I", [1] * 9), found.parts[:1], found.count, "search", found.is_whole)
    assert "1 of 1000 or more places" in TINY.decode(pieces.pieces(500, TINY)[-1].ids)


def places(text: str, words: str, *, is_regex: bool = True, offset: int = 0) -> list[tuple[int, int]]:
    """The places that are found in a text of which each character is a token."""
    found = find(SpelledIds(TINY.encode(text), TINY), words, is_regex=is_regex, offset=offset)
    assert found.is_whole
    assert found.count == len(found.parts)
    return [(part.first, part.last) for part in found.parts]


@each_of(
    ("text", "words", "place"),
    [
        ("aaa\nbqb\naaa\n", "q", (4, 7)),
        ("bqb", "q", (0, 3)),
        # Of a long line 200 bytes on each side.
        ("b" * 300 + "qq" + "b" * 300, "qq", (100, 502)),
        ("\n" + "b" * 199 + "q" + "b" * 199 + "\n", "q", (1, 400)),
        ("\n" + "b" * 200 + "q" + "b" * 200 + "\n", "q", (1, 402)),
        ("\n" + "b" * 201 + "q" + "b" * 201 + "\n", "q", (2, 403)),
        # Of a long place its beginning.
        ("b" * 300 + "q" * 300 + "b" * 300, "q+", (100, 700)),
        ("aaa\nbq\nccc\naaa", "q\nc", (4, 10)),
        ("aaa\nbq\nccc\n", "q\n", (4, 6)),
    ],
)
def test_place_is_shown_with_its_line_or_with_what_is_near_it(text: str, words: str, place: tuple[int, int]) -> None:
    assert places(text, words) == [place]


@each_of(
    ("text", "words", "found"),
    [
        ("aqaqa\nq\n", "q", [(0, 5), (6, 7)]),
        ("ab\n\nab", "", [(0, 2), (3, 4), (4, 6)]),
        ("ab\n\nab\n", "", [(0, 2), (3, 4), (4, 6)]),
        ("\n\n", "", [(0, 1), (1, 2)]),
        ("ab", "$", [(0, 2)]),
        ("a\nb", r"\n", [(0, 2)]),
        ("a\n\n\nb", r"\n", [(0, 2), (2, 3), (3, 4)]),
        ("a\n\n\nb", r"\n\n", [(0, 2), (2, 3)]),
        ("b" * 300 + "q" * 500 + "b" * 300, "q+", [(100, 700), (500, 1000)]),
        ("a\n\n\nb", "^$", [(2, 3), (3, 4)]),
        ("ab", "q", []),
    ],
)
def test_each_line_is_found_once(text: str, words: str, found: list[tuple[int, int]]) -> None:
    assert places(text, f"(?:{words})") == found


@pytest.mark.parametrize(("offset", "found"), [(0, [(0, 1), (2, 3)]), (1, [(2, 3)]), (2, [(2, 3)]), (3, [])])
def test_search_begins_at_its_offset(offset: int, found: list[tuple[int, int]]) -> None:
    assert places("q\nq", "q", offset=offset) == found


def test_words_are_not_an_expression_and_are_found_in_either_case() -> None:
    text = "A.B\naxb\n"

    assert places(text, "a.b", is_regex=False) == [(0, 3)]
    assert places(text, "a.b") == [(4, 7)]


def test_first_spelling_that_is_found_is_looked_for_alone() -> None:
    text = 'say "b"\nsay \\"b\\"\n'

    assert places(text, '"b"', is_regex=False) == [(0, 7)]
    assert places(text[8:], '"b"', is_regex=False) == [(0, 9)]
    assert find(SpelledIds(TINY.encode(text), TINY), "none", is_regex=False) == Found((), 0, is_whole=True)


def test_up_to_500_characters_are_looked_for() -> None:
    spelled = SpelledIds(TINY.encode("b" * 501), TINY)

    assert find(spelled, "b" * 500, is_regex=False).count == 1
    for words in ("", "b" * 501):
        with pytest.raises(ValueError, match=f"expected 1 to 500 characters to look for; got {len(words)}$"):
            find(spelled, words, is_regex=False)


@pytest.mark.parametrize("words", ["(", f"{'x' * 100}("])
def test_expression_that_cannot_be_used_is_named_up_to_its_80th_character(
    words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="can't be used") as raised:
        find(SpelledIds([1], TINY), words, is_regex=True)
    assert str(raised.value).startswith(f"the regular expression {words[:80]!r} can't be used: missing ): ")
    assert str(raised.value).endswith(f"{words} (RE2's syntax)")
    # RE2 would write it to standard error.
    assert capfd.readouterr().err == ""


def steps(words: str) -> int:
    """The instructions of an expression."""
    return int(re2.compile(f"(?m){words}").programsize)


def test_expression_is_refused_where_its_length_times_the_texts_is_more_than_250_million() -> None:
    # What else it has takes a few instructions.
    words = next(each for n in range(990, 1000) if steps(each := "a{1000}" * 24 + f"a{{{n}}}") == 25_000)
    text = "z" * 10_001

    assert places(text[:-1], words) == []
    assert places(text, words, offset=1) == []
    assert places(text, words[:500], is_regex=False) == []
    with pytest.raises(ValueError, match="is too complex for a result this large; use `text`") as raised:
        find(SpelledIds(TINY.encode(text), TINY), words, is_regex=True)
    assert str(raised.value).startswith(f"the regular expression {words[:80]!r} is")


@pytest.mark.parametrize("others", [0, 3000])
def test_search_ends_once_its_searches_may_have_taken_500_million_steps(others: int) -> None:
    """Each may look at all that is left of the window."""
    words, text = "q|" + "a{1000}" * 30, "z\n" * others + "q\n" * (4000 - others)
    left, at, count = 500_000_000, 0, 0
    while left >= 0:
        left -= steps(words) * (len(text) - at)
        at = 2 * (others + count) + 1
        count += 1

    found = find(SpelledIds(TINY.encode(text), TINY), words, is_regex=True)
    assert (found.count, found.is_whole, len(found.parts)) == (count, False, count)


@pytest.mark.parametrize("words", ["q", "q" * 300])
def test_words_are_searched_to_the_end_however_many_they_are(words: str) -> None:
    found = find(SpelledIds(TINY.encode(f"{words}\n" * 900), TINY), words, is_regex=False)

    size = len(words)
    assert (found.count, len(found.parts), found.is_whole) == (900, 100, True)
    assert found.parts[99] == SpelledPart(99 * (size + 1), 100 * (size + 1) - 1, 100)


def test_words_are_found_where_windows_meet_in_a_case_of_three_times_as_many_bytes() -> None:
    text = "x" * 7500 + "\N{KELVIN SIGN}" * 400 + "y" * 9000

    assert find(SpelledIds(TINY.encode(text), TINY), "k" * 400, is_regex=False).count == 1


@pytest.mark.parametrize("text", ['\\"c', 'a\\"', "\\u00fcc", "a\\u00fc"])
def test_words_are_found_as_json_escapes_them_only_if_all_of_them_are_there(text: str) -> None:
    spelled = SpelledIds(TINY.encode(text), TINY)

    assert find(spelled, 'a"c' if '"' in text else "aüc", is_regex=False) == Found((), 0, is_whole=True)


@pytest.mark.parametrize(("count", "is_whole"), [(1000, True), (1001, False)])
def test_thousand_places_are_counted(count: int, is_whole: bool) -> None:
    found = find(SpelledIds(TINY.encode("q\n" * count), TINY), "q", is_regex=False)

    assert (found.count, found.is_whole) == (1000, is_whole)


@pytest.mark.parametrize(("words", "is_regex", "is_split"), [("q", False, False), ("q", True, True)])
def test_only_an_expression_sees_parts_of_a_long_line(words: str, is_regex: bool, is_split: bool) -> None:
    long = "b" * 9000
    spelled = SpelledIds(TINY.encode(long), TINY)

    assert find(spelled, words, is_regex=is_regex).is_split is is_split
    assert not find(SpelledIds(TINY.encode("b\n" * 4500), TINY), words, is_regex=is_regex).is_split
    assert not find(SpelledIds(TINY.encode(long[:8192]), TINY), words, is_regex=is_regex).is_split
    assert find(SpelledIds(TINY.encode(long[:8193]), TINY), words, is_regex=is_regex).is_split is is_split


@pytest.mark.parametrize(("before", "shown"), [(13, 16), (14, 15), (15, 16)])
def test_cut_is_moved_back_to_a_line_end_that_costs_at_most_an_eighth(before: int, shown: int) -> None:
    ids = TINY.encode("a" * before + "\n" + "b" * 20)

    assert [*fitting(ids, 16, TINY)] == ids[:shown]


def test_ids_that_fit_are_all_shown_though_they_end_inside_a_character_or_a_line() -> None:
    ids = TINY.encode("a\né")[:-1]

    assert fitting(ids, len(ids), TINY) == ids
    assert fitting(TINY.encode("aéb"), 2, TINY) == TINY.encode("a")
    assert fitting(TINY.encode("é"), 1, TINY) == []
    assert fitting(TINY.encode("a😀"), 4, TINY) == TINY.encode("a")


def test_part_is_widened_to_whole_tokens_and_characters() -> None:
    spelled = SpelledIds(TINY.encode("hello\né world"), TINY)

    assert spelled.part(1, 2, "label") == SpelledPart(0, 1, 1, "label")
    assert spelled.part(5, 6) == SpelledPart(1, 2, 1)
    assert spelled.part(6, 7) == SpelledPart(2, 4, 2)
    assert spelled.part(7, 9) == SpelledPart(2, 5, 2)
    assert [spelled.byte_of(number) for number in range(6)] == [0, 5, 6, 7, 8, 14]


@pytest.mark.parametrize(
    ("first", "last", "place"),
    [(1, 1, (0, 2)), (1, 2, (0, 3)), (2, 2, (3, 4)), (3, 3, (4, 5)), (2, 9, (3, 6)), (4, 4, None), (5, 5, None)],
)
def test_lines_are_given_by_their_bytes(first: int, last: int, place: tuple[int, int] | None) -> None:
    assert SpelledIds(TINY.encode("ab\n\nc\n"), TINY).lines(first, last) == place


def test_line_of_a_part_counts_the_line_ends_before_it() -> None:
    spelled = SpelledIds(TINY.encode("\n\na\n"), TINY)

    assert [spelled.line_at(place) for place in range(4)] == [1, 2, 3, 3]
    assert spelled.part(2, 3) == SpelledPart(2, 3, 3)


def test_an_expression_that_cannot_be_read_is_named_as_it_was_sent() -> None:
    with pytest.raises(ValueError, match="can't be used") as refused:
        find(SpelledIds(TINY.encode("a"), TINY), "(a", is_regex=True)

    assert "(?m)" not in str(refused.value)
