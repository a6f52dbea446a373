"""Whether a tool keeps the contract: an MCP server, a bolt-on or a manifest's folder to verdicts, one per rule.

`verdict` is the outcome; `results` judges what a tool said, without knowing how it was asked; `mcp_server`, `bolt_on`
and `manifest` ask. `codec-leaf check` prints the verdicts. Builds on `leaf`; the modules that ask a server need the
extra `mcp` and are imported by their own names.
"""

from .results import judge_result
from .verdict import Report, Verdict

__all__ = ["Report", "Verdict", "judge_result"]
