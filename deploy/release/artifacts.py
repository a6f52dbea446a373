"""What a release consists of: a folder of the sources to wheels, sdists, lists of components, images and checksums.

The sources are a copy of what is committed. Nothing is published, and no image is pushed. `__main__` calls this.
"""

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Final

from deploy.check.images import mounts
from deploy.check.outcome import Failed, need, run

DISTRIBUTIONS: Final = (
    "codec-gateway",
    "codec-leaf",
    "codec-bench",
    "codec-console",
    "codec-demo",
    "codec-time-leaf",
    "codec-plain-time",
)
IMAGES: Final = {
    "codec-gateway": ("deploy/docker/gateway.Dockerfile", ""),
    "codec-gateway-embedded": ("deploy/docker/gateway.Dockerfile", "console,embedded"),
    "codec-time-leaf": ("deploy/docker/leaf.Dockerfile", ""),
}
SUMS: Final = "SHA256SUMS"
_UV: Final = str(Path(sys.executable).with_name("uv"))
_EXPORT: Final = (_UV, "export", "--quiet", "--frozen", "--all-extras", "--no-header", "--no-annotate")
_PIN = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?(==\S+)((?: ;.*?)?) \\$", re.MULTILINE)


def build_packages(source: Path, into: Path, epoch: str) -> str:
    """Build the sdists, and the wheels from them, with the locked build backend."""
    environment = {**os.environ, "VIRTUAL_ENV": sys.prefix, "SOURCE_DATE_EPOCH": epoch}
    command = [_UV, "build", "--quiet", "--all-packages", "--offline", "--no-build-isolation", "--out-dir", str(into)]
    run(command, where=source, seconds=600, env=environment)
    (into / ".gitignore").unlink(missing_ok=True)
    built = [path.name for path in into.iterdir() if path.name.endswith((".whl", ".tar.gz"))]
    if len(built) != 2 * len(DISTRIBUTIONS):
        raise Failed(f"a wheel and an sdist of each of {DISTRIBUTIONS} were expected, got {sorted(built)}")
    return f"{len(built)} files"


def constraints(lock: str) -> list[str]:
    """Return the versions that the lock names, as requirements without hashes."""
    return [f"{name}{version}{marker}" for name, version, marker in _PIN.findall(lock)]


def list_components(source: Path, into: Path, version: str) -> str:
    """Write a CycloneDX document for each distribution, with all its extras, at the versions of requirements.lock.

    uv writes it from a lock of its own, which is made here from ours and must export to ours again.
    """
    lock = (source / "requirements.lock").read_text(encoding="utf-8")
    with (source / "pyproject.toml").open("a", encoding="utf-8") as project:
        project.write(f"\n[tool.uv]\nconstraint-dependencies = {json.dumps(constraints(lock))}\n")
    run([_UV, "lock", "--quiet"], where=source, seconds=300)
    everything = ("--all-packages", "--all-groups", "--no-emit-workspace", "--format", "requirements.txt")
    if run([*_EXPORT, *everything], where=source) != lock:
        raise Failed("requirements.lock is not what the project files resolve to: run make lock, and commit it")
    for name in DISTRIBUTIONS:
        found = run([*_EXPORT, "--package", name, "--no-dev", "--format", "cyclonedx1.5"], where=source)
        (into / f"{name}-{version}.cdx.json").write_text(found, encoding="utf-8")
    return f"{len(DISTRIBUTIONS)} documents"


def build_images(source: Path, into: Path, version: str, revision: str) -> str:
    """Build the images as archives, on the base that `BASE` names. Raises `Skipped` if buildah is not installed."""
    buildah = need("buildah", "make deploy-install")
    base = [f"--build-arg=BASE={os.environ['BASE']}"] if os.environ.get("BASE") else []
    for name, (file, extras) in IMAGES.items():
        labels = [f"--build-arg=VERSION={version}", f"--build-arg=REVISION={revision}"]
        more = [f"--build-arg=EXTRAS={extras}"] if extras else []
        command = [buildah, "bud", "--quiet", "--format=docker", *mounts(), *base, *labels, *more, f"--file={file}"]
        run([*command, f"--tag={name}:{version}", "."], where=source, seconds=1800)
        run([buildah, "push", f"{name}:{version}", f"docker-archive:{into / f'{name}-{version}.tar'}:{name}:{version}"])
    return f"{len(IMAGES)} archives"


def checksums(folder: Path) -> str:
    """Return the sha256 of every file in a folder, in the form that `sha256sum --check` reads."""
    lines: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.name != SUMS:
            with path.open("rb") as file:
                lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    return "".join(lines)
