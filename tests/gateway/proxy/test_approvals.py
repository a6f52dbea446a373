"""Whether a call runs, is asked for or is refused, by annotations, settings and the request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.approvals import ApprovalsConfig
from gateway.proxy.approvals import Question, can_elicit, decide, level_of, why_asked

LEVELS = ("never", "destructive", "writes", "always")
READS, ADDS, DELETES = {"readOnlyHint": True}, {"destructiveHint": False}, {"destructiveHint": True}
HINTS = st.sampled_from(["readOnlyHint", "destructiveHint", "title"])
ANNOTATIONS = st.none() | st.dictionaries(HINTS, st.sampled_from([True, False, None, 0, 1, "true", []])) | st.text()
RULES = st.dictionaries(st.sampled_from(["up__x", "up__*", "*", "down__x"]), st.sampled_from(LEVELS))


def asked(level, annotations, **more):
    definition = {"name": "x"} if annotations is None else {"name": "x", "annotations": annotations}
    return why_asked(level, definition, **more) is not None


@pytest.mark.parametrize(
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


@given(level=st.sampled_from(LEVELS), annotations=ANNOTATIONS, rules=RULES, wanted=st.booleans())
def test_request_is_never_looser_than_the_operator(level, annotations, rules, wanted):
    settings, definition = ApprovalsConfig(level, rules), {"annotations": annotations}
    floor = why_asked(level_of(settings, "up__x"), definition)

    found = why_asked(level_of(settings, "up__x"), definition, wanted=wanted)

    assert (found is not None) == (floor is not None or wanted)
    assert floor in (None, found)


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


@pytest.mark.parametrize("why", [None, "it may"])
@pytest.mark.parametrize("approved", [False, True])
@pytest.mark.parametrize("can_ask", [False, True])
def test_call_that_needs_an_approval_runs_only_with_one(why, approved, can_ask):
    decision = decide(why, approved=approved, can_ask=can_ask)

    assert (decision == "run") == (why is None or approved)
    assert decision != "ask" or can_ask


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
    assert question.params["requestedSchema"] == {"type": "object", "properties": {}}


def test_long_arguments_are_cut_and_it_is_said_how_much_is_missing():
    question = Question("up__rm", "up", {"paths": "x" * 10_000}, "it may")

    assert len(question.params["message"]) < 2200
    assert "more characters)" in question.params["message"]
