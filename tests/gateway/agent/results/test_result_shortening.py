"""Compact forms of results: shorter, with the same values."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent import AnswerOptions
from gateway.agent.events import ToolFinished
from gateway.agent.results.large_results import SPECS
from gateway.agent.results.result_shortening import compact, compacted
from leaf_sdk.leaf.contract import CODEC_META_KEY, LEGACY_BLOCK_TYPE
from leaf_sdk.testing import tiny_map
from tests.cases import each_of
from tests.gateway.agent.test_memory import QUESTION, SAY, answered, prompts

TINY = tiny_map()
ROWS = [{"id": n, "name": f"Ann {n}", "tags": ["a"]} for n in range(4)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(), inner)
        | st.lists(st.fixed_dictionaries({"a": inner, "b": inner}), min_size=2)
    ),
)


def expanded(value: object) -> object:
    """A value with its tables as lists of objects."""
    if isinstance(value, list):
        return [expanded(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"columns", "rows"}:
        return [dict(zip(value["columns"], map(expanded, row), strict=True)) for row in value["rows"]]
    return {key: expanded(each) for key, each in value.items()}


@given(JSON, st.sampled_from([None, 1, 4]))
def test_every_value_is_kept(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)

    assert json.loads(compact(text, "minified")) == value
    assert expanded(json.loads(compact(text, "table"))) == value
    assert compact(text, "as_sent") == text


def test_table_names_each_key_once() -> None:
    text = compact(json.dumps({"total": 4, "items": ROWS}, indent=2), "table")

    assert text.count('"name"') == 1
    assert '[2,"Ann 2",["a"]]' in text
    assert compact(json.dumps(ROWS, indent=2), "minified").count('"name"') == 4


@pytest.mark.parametrize("number", ["1.50e3", "1E400", "-0.0", "123456789012345678901234567890.10"])
def test_numbers_stay_as_they_were_written(number: str) -> None:
    assert compact(f"[ {number} ]", "minified") == f"[{number}]"


@each_of(
    "text",
    [
        "Ann has [1, 2].",
        '{"a": 1',
        '{"a": 1, "a": 2}',
        "[NaN,   1]",
        '["\\ud800",   1]',
        "[" * 100_000 + "]" * 100_000,
        '{"a":1}',
        '   "text"   ',
        "",
    ],
)
@each_of("form", ["minified", "table"])
def test_text_that_is_no_json_or_would_not_get_shorter_stays_as_it_is(text: str, form: Any) -> None:
    assert compact(text, form) == text


def test_text_with_ids_of_its_own_stays_as_it_is() -> None:
    written = {"type": "text", "text": json.dumps(ROWS, indent=4)}
    shipped = {**written, "_meta": {CODEC_META_KEY: {"map_id": TINY.map_id, "ids": [1]}}}
    result, saved = compacted({"content": [shipped, written]}, "table", TINY)

    assert result["content"][0] == shipped
    assert saved == len(TINY.encode(written["text"])) - len(TINY.encode(result["content"][1]["text"])) > 0


@pytest.mark.anyio
@pytest.mark.parametrize(("form", "shorter"), [("as_sent", False), ("table", True)])
async def test_model_reads_the_form_that_the_operator_wants_and_the_answer_says_what_it_saved(
    open_stage: Any, form: str, shorter: bool
) -> None:
    text = json.dumps(ROWS, indent=4)
    async with open_stage(SAY, "Done.", says=text, context=9000, result_tokens=4000, names={"results": form}) as stage:
        await answered(stage, QUESTION)

    (told,) = stage.of(ToolFinished)
    assert (told.saved > 0) is shorter
    assert (told.text == text) is not shorter
    assert told.text in TINY.decode(prompts(stage)[-1])


@given(JSON)
def test_table_is_never_longer_than_the_minified_text(value: object) -> None:
    text = json.dumps(value, indent=2)

    assert len(compact(text, "table")) <= len(compact(text, "minified"))


@pytest.mark.anyio
async def test_result_of_which_only_a_part_is_shown_stays_as_it_was_sent(open_stage: Any) -> None:
    text = json.dumps(ROWS * 20, indent=4)
    async with open_stage(
        SAY, "Done.", says=text, context=9000, result_tokens=300, names={"results": "table"}
    ) as stage:
        await answered(stage, QUESTION)

    (told,) = stage.of(ToolFinished)
    assert (told.saved, told.text) == (0, text)


@pytest.mark.anyio
async def test_large_result_is_kept_once_as_it_was_sent_with_the_tools_that_read_it(open_stage: Any) -> None:
    text = json.dumps(ROWS * 200, indent=4)
    async with open_stage(
        SAY, "Done.", says=text, context=40_000, result_tokens=4000, names={"results": "table"}
    ) as stage:
        conversation = await stage.agent.open(QUESTION)
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    (told,) = stage.of(ToolFinished)
    (result,) = conversation.results
    assert told.kept is not None
    assert told.kept.handle == result.handle
    assert result.tokens == len(TINY.encode(text))
    assert SPECS[0].description in TINY.decode(prompts(stage)[-1])


@each_of(
    ("text", "form", "written"),
    [
        ('  { "é" : [ true , null , "ü" ] }', "minified", '{"é":[true,null,"ü"]}'),
        ('["\\u00e9\\u0001"]', "minified", '["é\\u0001"]'),
        (f'[{{"{"x" * 99}": 1}}, {{"{"x" * 99}": 2}}]', "table", None),
        (
            '[{"amount": 1, "number": 2}, {"number": 3, "amount": 4}, {"amount": 5, "number": 6}]',
            "table",
            '{"columns":["amount","number"],"rows":[[1,2],[4,3],[5,6]]}',
        ),
        (
            '{"all": [{"a long key": [{"another key": 1}, {"another key": 2}, {"another key": 3}]},'
            ' {"a long key": 2}, {"a long key": 3}]}',
            "table",
            '{"all":{"columns":["a long key"],"rows":[[{"columns":["another key"],"rows":[[1],[2],[3]]}],[2],[3]]}}',
        ),
        ('[{"number": 1}, {"number": 2}, {"number": 3, "at": 4}]', "table", None),
        ('[{"number": 1}, {"number": 2, "at": 4}, {"number": 3}]', "table", None),
        ('[{"number": 1}, {"number": 2}, {"other": 3}]', "table", None),
        ('[{"number": 1}, {"number": 2}, 3]', "table", None),
        ('[3, {"number": 1}, {"number": 2}]', "table", None),
        ("[{ }, { }, { }]", "table", None),
        ("[1, 2, 3]", "table", None),
    ],
)
def test_list_of_three_objects_with_equal_keys_is_a_table(text: str, form: Any, written: str | None) -> None:
    assert compact(text, form) == (written or text.replace(", ", ",").replace(": ", ":").replace("{ }", "{}"))


def test_text_of_the_same_length_stays_as_it_was_written() -> None:
    assert compact('["\\u001F"]', "minified") == '["\\u001F"]'
    assert compact('["\\u001F" ]', "minified") == '["\\u001f"]'


def test_text_of_more_than_4_mib_stays_as_it_is() -> None:
    longest = f'[ "{"x" * (4 * 1024 * 1024 - 5)}"]'

    assert len(compact(longest, "minified")) == 4 * 1024 * 1024 - 1
    assert compact(f"{longest} ", "minified") == f"{longest} "


def block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def test_each_text_of_a_result_gets_shorter_and_what_else_it_has_stays() -> None:
    image = {"type": "image", "data": "[ 1 ]"}
    result = {"content": [block("[ 1 ]"), image, block("Ann [ 1 ]"), block("{ }")], "isError": True}

    assert compacted(result, "minified", TINY) == (
        {"content": [block("[1]"), image, block("Ann [ 1 ]"), block("{}")], "isError": True},
        3,
    )


@pytest.mark.parametrize("blocks", [[block("[1, true]")], [block("Ann")], []])
def test_result_of_which_no_token_is_saved_stays_as_it_is(blocks: list[dict[str, str]]) -> None:
    result = {"content": blocks}

    assert compacted(result, "minified", TINY) == (result, 0)


def test_result_with_ids_in_the_older_form_stays_as_it_is() -> None:
    result = {"content": [block("[ 1 ]"), {"type": LEGACY_BLOCK_TYPE}]}

    assert compacted(result, "minified", TINY) == (result, 0)


def test_one_token_is_worth_a_shorter_text() -> None:
    assert compacted({"content": [block("[ 1]")]}, "minified", TINY) == ({"content": [block("[1]")]}, 1)
