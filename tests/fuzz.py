"""All cases of which the suite takes a part, then the properties with fresh seeds, round after round: `make fuzz`.

It ends when a time budget is over, or one fails. The suite itself takes the same examples each time (`conftest.py`), so
that a change is what makes it fail. Here each round has a seed of its own, which is printed: `--hypothesis-seed` plays
it again, with the profile that is set here.
"""

import argparse
import os
import secrets
import subprocess
import sys
import time


def main() -> int:
    """Give 0 when the time is over, and what pytest gives when a property fails."""
    parser = argparse.ArgumentParser(description="run the properties of the suite with fresh seeds")
    parser.add_argument("--minutes", type=float, default=10, help="the time budget; a round is not begun after it")
    parser.add_argument("paths", nargs="*", default=["tests"], help="where the properties are")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    marks = "in_full or hypothesis"
    while time.monotonic() < end:
        seed = secrets.randbelow(2**32)
        # What hangs is noticed; what a busy machine lets wait for minutes is not taken for it.
        options = ["-q", "-x", "-m", marks, "--timeout=3600", f"--hypothesis-seed={seed}", *given.paths]
        sys.stdout.write(f"== CODEC_FUZZ=1 pytest {' '.join(options)}\n")
        sys.stdout.flush()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options], env={**os.environ, "CODEC_FUZZ": "1"}, check=False
        )
        if done.returncode:
            return done.returncode
        marks = "hypothesis"
    return 0


if __name__ == "__main__":
    sys.exit(main())
