"""The forms of tools are found by their definitions, and a definition that requests share is hashed once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.engine.rendering.template_forms import ToolFault, ToolForms
from gateway.toolcalls.schema.spec import ToolSpec


@dataclass(eq=False)
class Counted(Mapping[str, Any]):
    """A schema that counts how often it is read whole."""

    schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})
    reads: int = 0

    def __getitem__(self, key: str) -> Any:
        return self.schema[key]

    def __iter__(self) -> Iterator[str]:
        self.reads += 1
        return iter(self.schema)

    def __len__(self) -> int:
        return len(self.schema)


ODD = ToolSpec("odd", "", {"type": "odd"})
FAULT = ToolFault("up", "odd", "it is odd")


def test_definition_that_requests_share_is_hashed_once() -> None:
    forms, schemas = ToolForms(), [Counted() for _ in range(20)]
    tools = [ToolSpec(f"tool{number}", "", schema) for number, schema in enumerate(schemas)]
    forms.note(ODD, None, FAULT)

    for _ in range(3):
        assert forms.rendered([ODD, *tools]) == tools
        assert forms.offered([ODD, *tools]) == tuple(tools)
        assert forms.left_out(tools[0]) is None
        forms.faults(tools, lambda name: "up")
        read = [schema.reads for schema in schemas]

    forms.rendered(tools)
    assert read == [schema.reads for schema in schemas]


def test_equal_definitions_of_different_requests_have_one_form_and_any_difference_another() -> None:
    forms = ToolForms()
    forms.note(ODD, None, FAULT)

    assert forms.left_out(ToolSpec("odd", "", {"type": "odd"})) is FAULT
    for other in (("even", "", {"type": "odd"}), ("odd", "x", {"type": "odd"}), ("odd", "", {"type": "even"})):
        assert forms.left_out(ToolSpec(*other)) is None


def test_what_is_known_of_schemas_is_bounded_and_outlives_no_schema() -> None:
    forms = ToolForms(most=2)
    forms.note(ODD, None, FAULT)
    for number in range(50):
        # The addresses of schemas that are gone are used again.
        assert forms.left_out(ToolSpec("odd", "", {"type": f"odd{number}"})) is None

    assert forms.left_out(ODD) is FAULT
