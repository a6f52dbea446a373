"""What a tool author's install costs: packages, bytes and the time of an import: `python -m bench.install`.

Makes an empty environment, installs the SDK's base into it at the locked versions, counts what was installed, and
imports it in fresh processes. Downloads what uv has not cached. Method: README.md.
"""

import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.record import summary, write

ROOT = Path(__file__).parents[1]
ROUNDS = 15
_IMPORT = """
import sys, time
started = time.process_time()
import leaf_sdk
print((time.process_time() - started) * 1000, "tokenizers" in sys.modules)
"""


def import_ms(python: str = sys.executable) -> float:
    """Import the SDK in a fresh process and return the milliseconds of CPU time that it took.

    Raises:
        RuntimeError: the import loaded the tokenizer.
    """
    done = subprocess.run([python, "-c", _IMPORT], capture_output=True, text=True, check=True, timeout=60)
    milliseconds, loaded = done.stdout.split()
    if loaded != "False":
        raise RuntimeError("import leaf_sdk loads tokenizers, expected it to be loaded with the first map")
    return float(milliseconds)


def sentence(results: dict[str, Any]) -> str:
    """Say what was measured, as the SDK's README does."""
    return (
        f"The base install is {results['packages']} packages of {results['bytes'] / 1e6:.0f} MB, most of them what "
        f"`tokenizers` asks for; `import leaf_sdk` takes {results['import_ms']['median']:.0f} ms of CPU time."
    )


def main() -> None:
    """Measure and write `results/install.json`."""
    with TemporaryDirectory() as folder:
        python = _install(Path(folder))
        found = [each for path in Path(folder).glob("lib/*/site-packages") for each in distributions(path=[str(path)])]
        files = [Path(str(each.locate_file(file))) for each in found for file in each.files or []]
        size = sum(path.stat().st_size for path in files if path.is_file() and path.suffix != ".pyc")
        import_ms(python)  # the first one also compiles
        times = [import_ms(python) for _ in range(ROUNDS)]
        names = sorted(each.metadata["Name"] for each in found)
    results = {"packages": len(names), "names": names, "bytes": size, "import_ms": summary(times)}
    print(sentence(results))
    print(write("install", ["codec-leaf", "tokenizers", "msgpack"], results).relative_to(ROOT))


def _install(folder: Path) -> str:
    uv = str(Path(sys.executable).with_name("uv"))
    environ = {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "VIRTUAL_ENV": str(folder)}
    wanted = ["--constraint", str(ROOT / "requirements.lock"), str(ROOT / "leaf_sdk")]
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], env=environ, check=True)
    subprocess.run([uv, "pip", "install", "--quiet", *wanted], env=environ, check=True)
    return str(folder / "bin" / "python")


if __name__ == "__main__":
    main()
