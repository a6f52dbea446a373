"""`codec-gateway bench`, run over the requests of a trace, and its report."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def report_of(urls: Sequence[str], lines: Iterable[Mapping[str, Any]], folder: Path, *words: str) -> dict[str, Any]:
    """Send the lines of a trace to servers by `/v1/completions`; `words`: more of the command's options."""
    (folder / "trace.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    given = ["--api", "completions", "--trace", str(folder / "trace.jsonl"), "--json", str(folder / "result.json")]
    command = [sys.executable, "-m", "gateway", "bench", *urls, *given, *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))
