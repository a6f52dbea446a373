"""`python -m pages`: writes every page of docs/ that is made from the code."""

from pathlib import Path
from typing import Final

from pages import api, api_fields, cli, configure, metrics, tool_formats

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGES: Final = {
    "api": api.render_page,
    "api-fields": api_fields.render_page,
    "cli": cli.render_page,
    "configure": configure.render_page,
    "metrics": metrics.render_page,
    "tool-formats": tool_formats.render_page,
}
"""By name, what writes the page."""


def main() -> None:
    """Write all of them."""
    for name, render_page in PAGES.items():
        (DOCS / f"{name}.md").write_text(render_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
