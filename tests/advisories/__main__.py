"""`python -m tests.advisories`: names every known advisory for a package in a lock.

Ends with 1 if there is one, and with 2 if the database can't be reached, so that nothing is known.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.advisories.audit import ROOT, SERVICES, NoDatabase, audited, check_database, locks


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.advisories", description=__doc__)
    parser.add_argument("--service", choices=[*SERVICES], default="pypi", help="the database: PyPI's or OSV's")
    service: str = parser.parse_args().service
    several = 0
    try:
        with tempfile.TemporaryDirectory() as scratch:
            check_database(service, Path(scratch))
        for lock in locks():
            found = audited(lock, service)
            several += len(found)
            print(f"{lock.relative_to(ROOT)}: {len(found) or 'no'} known advisories")
            for each in found:
                print(f"  {each}")
    except NoDatabase as error:
        print(f"the advisories could not be looked up: {error}", file=sys.stderr)
        print("this needs access to that address; SERVICE=osv or SERVICE=pypi asks the other database", file=sys.stderr)
        return 2
    return 1 if several else 0


if __name__ == "__main__":
    sys.exit(main())
