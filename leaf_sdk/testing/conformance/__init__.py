"""Whether a tool keeps the contract: an MCP server, a bolt-on or a manifest's folder to verdicts, one a rule.

`verdict` is what comes out; `results` judges what a tool said, without knowing how it was asked; `mcp_server`,
`bolt_on` and `manifest` ask. What `codec-leaf check` prints. Stands on `leaf`; the askers need the extra `mcp` and are
imported by their own names.
"""

from .results import judge_result
from .verdict import Report, Verdict

__all__ = ["Report", "Verdict", "judge_result"]
