"""A gateway over each family's model, with the embedded engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import RunningGateway, running_gateway
from tests.families.family import FAMILIES, family_model, small_family

SMALL = "small"


@pytest.fixture(
    scope="module",
    params=[SMALL, *(pytest.param(each, id=each.name, marks=pytest.mark.families) for each in FAMILIES)],
)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the family's model."""
    folder = tmp_path_factory.mktemp("family")
    data = small_family() if request.param == SMALL else family_model(request.param)
    (folder / "model.gguf").write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def gateway(family: Path) -> Iterator[RunningGateway]:
    flags = ("--engine", "embedded", "--model", str(family / "model.gguf"))
    with running_gateway(family, {}, *flags) as started:
        yield started
