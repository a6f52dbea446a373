"""`make bench-wire`: measure the wire and write `results/wire.json`, `docs/wire-speed.md` and its picture.

`--short` measures one short stream once, prints what it found and writes nothing, to check that everything still runs.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from bench.record import RESULTS, write
from bench.wire import cost, memory, picture, table
from bench.wire.rows import Scenario, measure, scenarios
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk import open_map

ROUNDS: Final = 3
SHORT: Final = [Scenario("greedy", 32, 100)]
DOCS: Final = Path(__file__).parents[2] / "docs"
_PACKAGES: Final = ("codec-leaf", "msgpack", "protobuf", "brotli", "backports-zstd", "codecai")


def main(*, short: bool) -> None:
    """Measure, and write or print."""
    token_map = open_map(packaged_model())
    rows = measure(SHORT if short else scenarios(), 1 if short else ROUNDS, token_map)
    results: dict[str, Any] = {"rounds": ROUNDS, "rows": rows}
    if short:
        print(json.dumps(results, indent=1))
        return
    results |= {"frame_us_per_token": cost.frames(), "handoff": cost.handoff(token_map)}
    results |= {"stream_kib": memory.measure()}
    write("wire", _PACKAGES, results)
    publish()


def publish() -> None:
    """Make the page and its picture from the committed results."""
    results, path = (json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in ("wire", "path"))
    (DOCS / "wire-speed.md").write_text(table.page(results, path), encoding="utf-8")
    (DOCS / "wire-speed.svg").write_text(picture.draw(results), encoding="utf-8")


if __name__ == "__main__":
    if "--publish" in sys.argv:
        publish()
    else:
        main(short="--short" in sys.argv)
