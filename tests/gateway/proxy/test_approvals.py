"""Whether a call runs, is asked for or is refused, by annotations, settings and the request."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.overrides import ApprovalsConfig
from gateway.proxy.approvals import Question, can_elicit, decide, is_read_only, level_of, why_asked
from tests.cases import each_of

LEVELS = ("never", "destructive", "writes", "always")
READS, ADDS, DELETES = {"readOnlyHint": True}, {"destructiveHint": False}, {"destructiveHint": True}
HINTS = st.sampled_from(["readOnlyHint", "destructiveHint", "title"])
ANNOTATIONS = st.none() | st.dictionaries(HINTS, st.sampled_from([True, False, None, 0, 1, "true", []])) | st.text()


def asked(level, annotations):
    definition = {"name": "x"} if annotations is None else {"name": "x", "annotations": annotations}
    return why_asked(level, definition) is not None


def question_about(arguments):
    return Question("up__rm", "up", arguments, "it may").params["message"]


@each_of(
    ("annotations", "levels"),
    [
        (None, {"destructive", "writes", "always"}),
        ({}, {"destructive", "writes", "always"}),
        (DELETES, {"destructive", "writes", "always"}),
        (ADDS, {"writes", "always"}),
        ({"readOnlyHint": False, **ADDS}, {"writes", "always"}),
        (READS, {"always"}),
        # What is read-only deletes nothing: `destructiveHint` has a meaning only beside writing tools.
        ({**READS, **DELETES}, {"always"}),
        # Malformed hints are as none.
        ({"readOnlyHint": "true", "destructiveHint": 0}, {"destructive", "writes", "always"}),
        ("readOnlyHint", {"destructive", "writes", "always"}),
    ],
)
def test_levels_ask_by_annotations_and_a_missing_one_has_the_default_of_the_specification(annotations, levels):
    assert {level for level in LEVELS if asked(level, annotations)} == levels


def test_tool_whose_definition_is_not_known_counts_as_one_without_annotations():
    assert why_asked("destructive", None) == "it may delete or overwrite something"
    assert why_asked("never", None) is None


@given(annotations=ANNOTATIONS, tool=st.sampled_from(["up__x", "up__y"]))
def test_each_level_asks_for_all_that_a_looser_one_asks_for(annotations, tool):
    asks = [
        why_asked(level_of(ApprovalsConfig(level), tool), {"annotations": annotations}) is not None for level in LEVELS
    ]

    assert asks == sorted(asks)


def test_name_counts_before_patterns_and_of_patterns_the_strictest():
    settings = ApprovalsConfig("writes", {"up__*": "never", "*__push": "always", "up__push": "destructive"})

    assert [level_of(settings, name) for name in ("up__push", "down__push", "up__pull", "UP__pull")] == [
        "destructive",
        "always",
        "never",
        "writes",
    ]
    assert level_of(ApprovalsConfig("never", {"a*": "writes", "*a": "always", "?a": "never"}), "aa") == "always"


def test_of_several_names_of_a_tool_the_strictest_rule_counts_and_a_pattern_may_match_the_alias_alone():
    settings = ApprovalsConfig("never", {"up__push": "destructive", "mine__*": "always", "up__wipe_all_*": "writes"})

    assert level_of(settings, "up__push", "mine__push") == level_of(settings, "mine__push", "up__push") == "always"
    assert level_of(settings, "up__wipe.all") == "writes"


@each_of("why", [None, "it may"])
@each_of("approved", [False, True])
@each_of("can_ask", [False, True])
def test_call_that_needs_an_approval_runs_only_with_one(why, approved, can_ask):
    decision = decide(why, approved=approved, can_ask=can_ask)

    assert (decision == "run") == (why is None or approved)
    assert decision != "ask" or can_ask


def test_call_that_needs_an_approval_is_refused_unless_it_has_one_or_somebody_can_be_asked():
    assert decide("it may") == "refuse"
    assert decide("it may", can_ask=True) == "ask"


def test_tool_is_read_only_if_its_server_says_just_that():
    definitions = [{"annotations": each} for each in (READS, {"readOnlyHint": "true"}, ADDS, {}, None)]

    assert [is_read_only(each) for each in definitions] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("capabilities", "can"),
    [
        ({}, False),
        ({"elicitation": {}}, True),
        ({"elicitation": {"form": {}}}, True),
        ({"elicitation": {"url": {}, "form": {}}}, True),
        ({"elicitation": {"url": {}}}, False),
        ({"elicitation": None}, False),
        ({"sampling": {}}, False),
    ],
)
def test_client_can_be_asked_if_it_shows_forms(capabilities, can):
    assert can_elicit(capabilities) is can


def test_question_and_refusal_name_the_tool_its_server_the_target_and_the_reason_on_lines_of_their_own():
    question = Question("up__rm\x1b[2J", "up", {"path": "/etc\u202e\n\n/tmp"}, "it may delete or overwrite something")
    message, refusal = question.params["message"], question.refusal("nobody can be asked here")

    for text in (message, refusal):
        assert all(part in text for part in ("up__rm", "'up'", "/etc", "/tmp", "may delete or overwrite something"))
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert len(text.split("\n")) == 2
    assert "nobody can be asked here" in refusal
    assert "Tell the user" in refusal
    assert "? It may delete or overwrite something.\n" in message
    assert question.params["requestedSchema"] == {"type": "object", "properties": {}}


def test_arguments_of_2000_characters_are_shown_whole_even_if_each_is_invisible():
    arguments = {"path": "\U000e0041" * (2000 - len('{"path": ""}'))}

    assert question_about(arguments).endswith("\\U000e0041" * 1988 + '"}')
    assert "too many to be shown" in question_about({"path": "x" + arguments["path"]})


def test_of_many_arguments_only_those_that_are_shown_are_written_one_by_one():
    written = 0

    class Counted:
        def __str__(self):
            nonlocal written
            written += 1
            return "x"

    assert question_about({str(n): Counted() for n in range(1000)}).endswith("}, and 960 more arguments")
    assert written <= 1000 + 40


def test_long_arguments_are_cut_and_it_is_said_how_much_is_missing():
    question = Question("up__rm", "up", {"paths": "x" * 10_000}, "it may")

    assert len(question.params["message"]) < 2400
    assert "more characters)" in question.params["message"]
    assert "are 10013 characters, too many to be shown here" in question.params["message"]
    assert "(8011 more characters)" in question.params["message"]
    assert "audit.arguments" in question.params["message"]


def test_forty_arguments_are_each_shown_and_none_is_left_out():
    assert question_about({f"k{n}": "x" * 100 for n in range(40)}).endswith("}")


@pytest.mark.parametrize("count", [1, 3, 39])
def test_no_argument_hides_behind_long_ones(count):
    before = {f"note{number}": "all is well " * 500 for number in range(count)}
    message = Question("up__rm", "up", {**before, "path": "/srv", "force": True}, "it may").params["message"]
    shown = message.partition("The beginning of each: ")[2]

    assert all(name in shown for name in before)
    if count < 39:
        assert '"path": "/srv"' in shown
        assert '"force": true' in shown
    assert len(shown) < 2000 + 50 * count


def test_arguments_that_are_too_many_to_be_shown_are_counted():
    message = Question("up__rm", "up", {f"k{n}": "x" * 100 for n in range(100)}, "it may").params["message"]

    assert message.endswith("}, and 60 more arguments")


@each_of(
    "invisible",
    [
        "\u202e",
        "\u2066",
        "\u200b",
        "\ufeff",
        "\u00ad",
        "\x9b",
        "\u2028",
        "\u115f",
        "\u3164",
        "\ufe0f",
        "\u2800",
        "\u034f",
        "\U000e0041",
        "\U000e0100",
        "\uffa0",
        "\u180b",
        "\u17b4",
    ],
)
def test_nothing_in_arguments_is_invisible_or_moves_what_is_read(invisible):
    question = Question("up__rm", "up", {f"pa{invisible}th": f"/tmp{invisible}/x"}, "it may")

    for text in (question.params["message"], question.refusal("nobody can be asked here")):
        assert invisible not in text
        assert text.count(ascii(invisible)[1:-1]) == 2


@given(st.dictionaries(st.text(max_size=30), st.one_of(st.text(max_size=4000), st.integers(), st.none()), max_size=60))
def test_what_is_shown_of_arguments_is_bounded_and_its_count_is_right(arguments):
    message = Question("up__rm", "up", arguments, "it may").params["message"]
    assert len(message) < 20_000 + 200
    assert ("too many to be shown" in message) == (len(json.dumps(arguments, ensure_ascii=False)) > 2000)
