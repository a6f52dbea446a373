"""What follows a turn of the model, without an engine: where its own text ends, in which forms it is asked for."""

import pytest

from gateway.engine.rendering.foreign_text import Fit, ForeignText, MarkerGuard, Signs
from gateway.engine.rendering.scaffold import (
    Following,
    Scaffold,
    Shapes,
    TurnEnd,
    TurnShape,
    counting,
    definitions,
    following,
    layouts,
    shape_of,
)
from leaf_sdk.testing import tiny_map
from tests.cases import each_of

TINY = tiny_map()


def foreign() -> ForeignText:
    return ForeignText(Signs(MarkerGuard(TINY.special_texts)))


def after(head: str, *, in_call: bool = True, more: tuple[str, ...] = ()) -> Following:
    return Following(head, more, (Fit(),), in_call, foreign())


@each_of(
    ("head", "end", "place"),
    [
        ('"}}<|im_end|>\n', TurnEnd('x": "y"}}', "<|im_end|>"), 3),
        # The token that ended it is not shown: the text that it wrote last is.
        ('"}}\n</call>\n', TurnEnd('x": "y"}}\n</call>', "<|none|>"), 11),
        ('"}}\n</call>\n', TurnEnd('x": "y"}}\n</call>'), 11),
        ('"}}\n', TurnEnd(lambda: '"y"}}'), 3),
        # Blanks that it wrote at its end count if they are shown.
        ('"}}  \n', TurnEnd('"}}  '), 5),
        ('"}}\n', TurnEnd('"}}  '), 3),
        # Less and less of it is looked for; a single sign is enough, a single letter is not.
        ("]\n", TurnEnd('"}]'), 1),
        ("a\n", TurnEnd("ba"), None),
        ("1\n", TurnEnd("21"), None),
        ("ba\n", TurnEnd("cba"), 2),
        ("]\n", TurnEnd(""), None),
        ("]\n", TurnEnd("  "), None),
        ("abc", TurnEnd("", "<|im_end|>"), None),
        # Only its last characters are looked for.
        ("y" * 64 + "]", TurnEnd("x" + "y" * 64), 64),
    ],
)
def test_turn_ends_where_its_token_or_its_last_text_is_shown(head: str, end: TurnEnd, place: int | None) -> None:
    assert after(head).end_of_turn(end) == place
    # A turn of words alone is cut at its end already.
    assert after(head, in_call=False).end_of_turn(end) == 0


def test_ids_of_calls_are_found_wherever_they_are_shown_and_replaced_there() -> None:
    signs = foreign()
    head, more = f"<{signs.call_id(0)}>", f"[{signs.call_id(1)}]"
    content = signs.content("x")

    def behind(text: str) -> Following:
        # The ids of the turn's own calls do not count.
        found = following(f"{head}{signs.anchor}{text}", signs, in_call=True)
        assert found is not None
        return found

    assert not behind(f"plain{content}plain").shows_ids
    assert behind(f"{head}{content}").shows_ids
    assert behind(f"{content}{more}").shows_ids
    both = behind(f"{head}{content}{more}")
    pieces = both.scaffold(1, ("one", "two"), TINY).pieces
    assert [TINY.decode(each) for each in pieces] == ["one>", "[two]"]
    assert both.scaffold(0, (), TINY).size == len(TINY.encode(head)) + len(TINY.encode(more))


def test_plain_text_for_comparison_has_no_separators() -> None:
    signs = foreign()
    assert Following(f"a{signs.separator}b", (f"{signs.separator}",), (), True, signs).plain == ("ab", "")


def test_content_of_a_scaffold_is_tokenized_again_only_if_the_template_changes_it() -> None:
    scaffold = Scaffold(((1, 2), (3,)), (Fit(), Fit(left=" "), Fit(left=" ")))
    plain, blank = TINY.encode("hello"), TINY.encode(" hello")

    assert scaffold.size == 3
    assert scaffold.fitted(0, blank, TINY) is blank
    assert scaffold.fitted(1, plain, TINY) is plain
    assert TINY.decode(scaffold.fitted(1, blank, TINY)) == "hello"


def roles(shape: TurnShape, role: str, count: int = 1) -> list[tuple[list[str], int, bool]]:
    """Of each layout the roles, the calls of the turn before the contents, and whether these are shown."""
    signs = foreign()
    found = []
    for messages, in_call in layouts(shape, role, ["-"] * count, signs):  # pyright: ignore[reportArgumentType]
        turn = next(each for each in reversed(messages) if each["role"] == "assistant")
        found.append(([each["role"][0] for each in messages], len(turn.get("tool_calls", ())), in_call))
    return found


def test_results_are_asked_for_behind_calls_then_behind_words_then_as_a_question() -> None:
    question = (["u", "a", "u"], 0, False)

    assert roles(TurnShape(), "user") == [question]
    assert roles(TurnShape(), "tool") == [(["u", "a", "t"], 0, False), question]
    assert roles(TurnShape(("one",)), "tool") == [(["u", "a", "t"], 1, True), (["u", "a", "t"], 0, False), question]
    several = [(["u", "a", "t", "t"], 2, True), (["u", "a", "t", "t"], 1, True), (["u", "a", "t", "t"], 0, False)]
    assert roles(TurnShape(("one", "two")), "tool", 2) == [*several, question]
    before = TurnShape(("one",), earlier=(1, 2))
    assert roles(before, "tool")[0] == (["u", "a", "t", "a", "t", "t", "a", "t"], 1, True)
    assert roles(before, "tool")[1] == (["u", "a", "t"], 0, False)


def test_layout_has_words_and_reasoning_as_the_turn_has_and_calls_with_ids_of_their_own() -> None:
    signs = foreign()
    shape = TurnShape(("one", "two"), content=True, reasoning=True, earlier=(2,))
    messages, _ = next(layouts(shape, "tool", ["x", "y"], signs))
    turn = messages[4]

    assert (turn["content"], turn["reasoning_content"]) == (".", ".")
    assert [call["function"]["name"] for call in turn["tool_calls"]] == ["one", "two"]
    assert all(signs.anchor in call["function"]["arguments"] for call in turn["tool_calls"])
    shown = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert shown == [signs.call_id(n) for n in (2, 3, 0, 1)]
    results = [(each["content"], each["tool_call_id"], each["name"]) for each in messages if each["role"] == "tool"]
    ids = [signs.call_id(n) for n in (2, 3, 0, 1)]
    names = ["one", "one", "one", "two"]
    assert results == [*zip([".", ".", "x", "y"], ids, names, strict=True)]
    bare, _ = next(layouts(TurnShape(("one",)), "tool", ["x"], signs))
    assert (bare[1]["content"], "reasoning_content" in bare[1]) == ("", False)
    words, _ = next(layouts(TurnShape(content=True), "user", ["x", "y"], signs))
    assert (words[1]["content"], words[2]["content"]) == (signs.anchor, "x\n\ny")
    unnamed, _ = next(layouts(TurnShape(), "tool", ["x", "y"], signs))
    assert [each["name"] for each in unnamed[2:]] == [signs.text("tool")] * 2
    # With one more call before it, a template that counts shows it.
    assert counting(shape).earlier == (2, 1)


def test_turn_is_rendered_with_the_smallest_definitions_of_its_tools_if_the_request_offered_any() -> None:
    signs = foreign()
    names = [each["function"]["name"] for each in definitions(TurnShape(("x", "y", "x"), tools=True), signs)]

    assert names == ["x", "y"]
    assert definitions(TurnShape(("x",)), signs) == []
    (only,) = definitions(TurnShape(tools=True), signs)
    assert only["function"]["name"] == signs.text("tool")


def test_what_follows_a_turn_is_known_only_if_the_turn_and_each_content_are_shown_once_in_order() -> None:
    signs = foreign()
    first, second = signs.content("x"), signs.content("y")
    turn = f"before{signs.anchor}"

    def found(text: str) -> Following | None:
        return following(text, signs, in_call=True)

    whole = found(f"{turn}head{first}between{second}end")
    assert whole is not None
    assert (whole.head, whole.after, whole.in_call) == ("head", ("between", "end"), True)
    assert whole.fits == (Fit("", ""), Fit("", ""))
    for text in (
        f"before{first}{second}",
        f"{turn}{first}",
        f"{turn}{second}{first}",
        f"{turn}{first}{first}{second}",
        f"{turn}{first}{second}{signs.mark}",
        f"{turn}{first}{second}".replace('"', "?"),
    ):
        assert found(text) is None
    # The last place of the turn counts.
    again = found(f"{turn}{turn}head{first}{second}")
    assert again is not None
    assert again.head == "head"


def test_shape_that_did_not_append_once_never_does() -> None:
    shapes = Shapes()
    assert shapes.appends(("a",)) is None
    shapes.note(("a",), True)
    assert shapes.appends(("a",)) is True
    shapes.note(("a",), False)
    shapes.note(("a",), True)
    assert shapes.appends(("a",)) is False


def test_shapes_that_were_noted_longest_ago_are_forgotten() -> None:
    shapes = Shapes()
    for number in range(1024):
        shapes.note((str(number),), True)
    shapes.note(("0",), True)
    assert shapes.appends(("1",)) is True
    shapes.note(("new",), True)

    assert [shapes.appends((each,)) for each in ("0", "1", "2", "new")] == [True, None, True, True]


def said(role: str, content: str | None = "x", **more: object) -> dict[str, object]:
    return {"role": role, "content": content, **more}


CALLS = [{"id": str(number)} for number in range(3)]


def test_shape_tells_roles_what_is_empty_and_how_many_calls_up_to_two() -> None:
    messages = [
        said("system"),
        said("user", ""),
        said("assistant", " ", tool_calls=CALLS[:1]),
        said("tool", None),
        said("assistant", "x", reasoning_content="y", tool_calls=CALLS),
        said("tool"),
        said("assistant", "x", reasoning_content=" "),
        said("user"),
    ]

    assert shape_of(messages, 1, tools=True) == (
        *("tools", "system", "user empty", "assistant 001", "tool empty", "assistant 112", "tool", "assistant 100"),
        *("|", "user"),
    )
    shown = shape_of(messages, 3, tools=False, inside={4, 6}, forms={2: " a", 6: " b"})
    assert shown == (
        *("", "system", "user empty", "assistant 001 a", "tool empty", "assistant 112+"),
        *("|", "tool", "assistant 100+ b", "user"),
    )


@pytest.mark.parametrize(("size", "counted"), [(1, 2), (2, 4), (5, 10), (6, 12), (7, 35)])
def test_repeated_part_of_up_to_six_messages_counts_twice(size: int, counted: int) -> None:
    part = [said(f"role{number}") for number in range(size)]
    shape = shape_of(part * 5, 0, tools=False)

    assert len(shape) - 2 == counted
    assert shape[1 : 1 + counted] == tuple(each["role"] for each in part * 5)[:counted]
