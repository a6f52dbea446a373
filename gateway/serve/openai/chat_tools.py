"""The tools of a chat request: functions and free-form tools are the client's, others are left out by name. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.observe.escape import escape_text
from gateway.serve.generation.client_tools import read_client_tool
from gateway.serve.generation.schemas import check_schemas
from gateway.toolcalls import ToolSpec

_SHOWN: Final = 64
_LEFT_OUT: Final = 32


class ChatTools:
    """The tools of one request."""

    def __init__(self, tools: Sequence[Mapping[str, Any]], where: str) -> None:
        """Read them. Raises `RequestInvalid` that names the entry."""
        self.specs = list[ToolSpec]()
        free_form: list[str] = []
        left_out: list[str] = []
        for number, tool in enumerate(tools):
            place = f"{where}[{number}]"
            read = read_client_tool(tool, place)
            if read is None:
                left_out.append(f"{place}: {escape_text(str(tool.get('type')), _SHOWN)}")
                continue
            self.specs.append(read.spec)
            if read.kind == "custom":
                free_form.append(read.spec.name)
            if read.has_unheld_format:
                left_out.append(f"{place}.format")
        check_schemas(spec.parameters for spec in self.specs)
        self.free_form = frozenset(free_form)
        """Names of the free-form tools."""
        self.left_out = tuple(left_out[:_LEFT_OUT])
