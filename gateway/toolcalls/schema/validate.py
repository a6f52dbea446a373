"""A call's arguments against its tool's JSON Schema: what is wrong with them, in words for the model that wrote them.

It helps a model to call again; the upstream still judges. How a schema is read is `check.py`'s which is loaded
with the first call.
"""

from gateway.toolcalls.schema.spec import ToolSpec


def validate_call(tool: ToolSpec, arguments: object) -> list[str]:
    """Say what of a call's arguments (JSON, read) does not fit the tool's schema; an empty list: all does.

    At most five, each with its place, as in `arguments.days: 'x' is not of type 'integer'`. Never raises: a schema that
    can't be read has no problems.
    """
    # A tenth of what a gateway loads, which one without a model never needs.
    from gateway.toolcalls.schema.check import problems

    return problems(tool.parameters, arguments)
