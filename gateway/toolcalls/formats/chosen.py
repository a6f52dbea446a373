"""Which format a model's calls are read in, and what teaches it to the model: the chat template, or the gateway's text.

A setting that names a format decides. Otherwise the template does: by texts that are typical of its family, or, where
the engine says that it renders tools, by the call that its text shows. A template that has neither gets `generic`,
which the gateway teaches. Decided once for each model.
"""

from dataclasses import dataclass

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.registry import GENERIC, format_for_template, format_named
from gateway.toolcalls.formats.taught import taught_format

AUTO = "auto"
"""The setting that leaves the choice to the template."""


@dataclass(frozen=True, slots=True)
class ChosenFormat:
    """The format of one model."""

    format: Format
    preamble: bool
    """Whether the gateway describes tools, and how to call them, in the system text: the template does not, or not in
    a form that could be read."""
    calls_as_text: bool
    """Whether calls are content for the template, which can't write them; never without a preamble."""


def choose_format(
    jinja_text: str, *, supports_tools: bool, supports_calls: bool = False, wanted: str = AUTO
) -> ChosenFormat:
    """Choose the format for a chat template. Raises `UnknownFormat` where `wanted` is neither a format nor "auto"."""
    if wanted != AUTO:
        fmt = format_named(wanted)
    else:
        fmt = format_named(format_for_template(jinja_text))
        if fmt is GENERIC and supports_tools:
            fmt = taught_format(jinja_text) or GENERIC
    preamble = fmt is GENERIC or not supports_tools
    # DeepSeek V3.1's template writes calls, but shows no definitions.
    return ChosenFormat(fmt, preamble, calls_as_text=preamble and (fmt is GENERIC or not supports_calls))
