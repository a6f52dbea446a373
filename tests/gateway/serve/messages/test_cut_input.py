"""The beginning of an object: its whole members, whatever the cut goes through."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.serve.messages.message_reply import whole_members
from tests.cases import each_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@each_of(
    ("begun", "left"),
    [
        ("", "{}"),
        ("{", "{}"),
        ('{"a', "{}"),
        ('{"a": 12', "{}"),
        ('{"a": 12, "b', '{"a": 12}'),
        ('{"a": 12, "b": "x, y', '{"a": 12}'),
        ('{"a": 12, "b": "x\\', '{"a": 12}'),
        ('{"a": 12, "b": [1, {"c": 2}, ', '{"a": 12}'),
        ('{"a": 12, "b": [1, 2], "c": ', '{"a": 12, "b": [1, 2]}'),
        ('{"a": "}, {", "b', '{"a": "}, {"}'),
        ('{"a": 1}', '{"a": 1}'),
        ('{"a": 1e3,  "b', '{"a": 1e3}'),
        ("[1, 2", "{}"),
        ("not JSON, at all", "{}"),
        ('{"a": no, "b', "{}"),
    ],
)
def test_members_before_the_cut_stay_as_they_were_written(begun: str, left: str) -> None:
    assert whole_members(begun) == left


@given(st.dictionaries(st.text(), JSON), st.data(), st.booleans())
def test_cut_object_is_the_beginning_of_the_whole_one(
    value: dict[str, object], data: st.DataObject, wide: bool
) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1 if wide else None)
    at = data.draw(st.integers(0, len(text)))

    found = json.loads(whole_members(text[:at]))

    assert list(found.items()) == list(value.items())[: len(found)]
    assert at < len(text) or found == value
