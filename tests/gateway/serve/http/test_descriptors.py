"""The limit of open files: raised, split, and said."""

import resource
import subprocess
import sys

import pytest

from gateway.serve.http.http_server import FileLimit, file_limit

RAISE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, int(sys.argv[1])))
from gateway.observe.logs import configure_logging
from gateway.serve.http.http_server import raise_file_limit
configure_logging()
raise_file_limit(int(sys.argv[2]))
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def raised(hard: int, connections: int) -> subprocess.CompletedProcess[str]:
    """What becomes of a process whose soft limit is 64."""
    command = [sys.executable, "-c", RAISE, str(hard), str(connections)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_soft_limit_is_raised_to_the_hard_one_and_the_log_says_so() -> None:
    done = raised(4000, 3000)

    assert done.stdout.strip() == "4000"
    assert '"limit": 4000' in done.stderr
    assert '"raised_from": 64' in done.stderr
    assert '"reserved": 512' in done.stderr
    assert "LimitNOFILE" not in done.stderr


def test_limit_that_is_the_highest_already_is_not_worth_a_word() -> None:
    assert raised(64, 8).stderr == ""


def test_limit_that_is_too_low_for_the_connections_is_a_warning() -> None:
    assert "LimitNOFILE" in raised(1000, 4096).stderr


@pytest.mark.parametrize(("files", "reserve"), [(400, 100), (1024, 256), (20_000, 512), (2**20, 512)])
def test_a_quarter_is_kept_and_no_more_than_is_needed(files: int, reserve: int) -> None:
    limit = file_limit(files)

    assert limit == FileLimit(files, reserve)
    assert limit.for_clients == files - reserve
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 1000
