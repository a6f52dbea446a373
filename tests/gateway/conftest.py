"""What tests of the gateway in this process share: nothing that one of them has kept."""

from itertools import count

import pytest

_NUMBERS = count()


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A state folder for each test: definitions that one has pinned would warn or block in the next."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "states" / str(next(_NUMBERS))))
