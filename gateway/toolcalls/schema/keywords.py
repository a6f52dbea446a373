"""The keywords of JSON Schema that hold more than one schema, or none. Source: JSON Schema 2020-12 and draft 7."""

from typing import Final

BY_NAME: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose value is an object of schemas by names that are not keywords."""
DATA: Final = frozenset(("enum", "const", "default", "examples"))
"""Keywords whose value is any JSON, which may look like a schema and is none."""
