"""`python -m bench.reference`: write `docs/reference-figures.md` from the committed results. It measures nothing."""

import json
from pathlib import Path
from typing import Any, Final

from bench.record import RESULTS
from bench.reference.page import NAMES, page

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference-figures.md"


def results() -> dict[str, Any]:
    """Read the results that the page is made from."""
    return {name: json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES}


if __name__ == "__main__":
    PAGE.write_text(page(results()), encoding="utf-8")
