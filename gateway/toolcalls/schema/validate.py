"""Checks a call's arguments against its tool's JSON Schema: says what is wrong, for the model that wrote them.

It helps a model to call again; the upstream still decides. `check.py`, which is loaded with the first call, reads the
schema.
"""

from gateway.toolcalls.schema.spec import ToolSpec


def validate_call(tool: ToolSpec, arguments: object) -> list[str]:
    """Say which of a call's arguments (parsed JSON) do not fit the tool's schema; an empty list: all of them fit.

    At most five, each with its place, as in `arguments.days: 'x' is not of type 'integer'`. Never raises: a schema that
    can't be read gives no problems.
    """
    # Imported late: it is a tenth of what a gateway loads, and a gateway without a model never needs it.
    from gateway.toolcalls.schema.check import problems

    return problems(tool.parameters, arguments)
