"""The images, actually built: a Debian base made by debootstrap, and both Dockerfiles on it.

Turns the Dockerfiles into images named after this check, and reports how large their layers are above the base. The
machine's certificates are mounted while packages are fetched, and are in no layer.
"""

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from deploy.check.outcome import PREFIX, Failed, need, note, run

BUILDS: Final = {
    "gateway": ("deploy/docker/gateway.Dockerfile", ""),
    "gateway-embedded": ("deploy/docker/gateway.Dockerfile", "console,embedded"),
    "leaf": ("deploy/docker/leaf.Dockerfile", ""),
}
LARGEST: Final = {"gateway": 200.0, "gateway-embedded": 400.0}
"""Megabytes that an image may have above its base."""
BASE: Final = "base-slim"
"""The image that stands for python:3.13-slim-bookworm."""
_DEBIAN: Final = "bookworm"
_PACKAGES: Final = "python3,python3-venv,ca-certificates,netbase,tzdata"
"""What python:3.13-slim-bookworm adds to Debian's base, with Debian's Python in place of its own, and nothing else."""
_HANGS: Final = 3600.0
"""Seconds after which a hanging step is ended; on two cores a whole run from nothing took eleven minutes."""
_CERTIFICATES: Final = ("/etc/ssl/certs", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates")


def make_base() -> str:
    """Make the base image, once; it is kept for the next run."""
    buildah = need("buildah", "buildah")
    if _exists(buildah, BASE):
        return "kept from an earlier run"
    note("made", "base", True)
    debootstrap = need("debootstrap", "debootstrap")
    container = run([buildah, "from", "scratch"]).strip()
    try:
        with tempfile.TemporaryDirectory() as folder:
            run([debootstrap, "--variant=minbase", f"--include={_PACKAGES}", _DEBIAN, folder], seconds=_HANGS)
            for cache in ("var/cache/apt/archives", "var/lib/apt/lists"):
                run(["find", f"{folder}/{cache}", "-type", "f", "-delete"])
            run([buildah, "copy", "--quiet", container, folder, "/"], seconds=_HANGS)
        run([buildah, "config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container])
        run([buildah, "commit", "--quiet", container, f"{PREFIX}/{BASE}"], seconds=_HANGS)
    finally:
        run([buildah, "rm", container])
    return f"Debian {_DEBIAN} by debootstrap, {_megabytes(BASE):.0f} MB"


def build(name: str) -> str:
    """Build one image; returns its size above the base. Raises `Failed` if it is over its bar.

    The image of an earlier run is removed first, or it would stay without a name.
    """
    dockerfile, extras = BUILDS[name]
    buildah = need("buildah", "buildah")
    if _exists(buildah, name):
        run([buildah, "rmi", "--force", f"{PREFIX}/{name}"])
    arguments = [f"--build-arg=BASE={PREFIX}/{BASE}", f"--build-arg=EXTRAS={extras}"]
    command = [buildah, "bud", "--quiet", "--format=docker", "--isolation=chroot", "--network=host", *mounts()]
    command += arguments if extras else arguments[:1]
    run([*command, f"--file={dockerfile}", f"--tag={PREFIX}/{name}", "."], seconds=_HANGS)
    size = _megabytes(name) - _megabytes(BASE)
    note("images", name, round(size))
    if size > (most := LARGEST.get(name, size)):
        raise Failed(f"the layers are {size:.0f} MB above the base, at most {most:.0f} are allowed")
    return f"{size:.0f} MB above the base"


def mounts() -> list[str]:
    """Return the options that lend a build the certificates of this machine, which it needs behind a proxy."""
    return [f"--volume={path}:{path}:ro" for path in _CERTIFICATES if Path(path).is_dir()]


def inspect(name: str) -> str:
    """Check an image by the rules: a numeric user, a health check, TERM, labels, and nothing from this machine."""
    buildah = need("buildah", "buildah")
    described: dict[str, Any] = json.loads(run([buildah, "inspect", "--type=image", f"{PREFIX}/{name}"]))["Docker"]
    config = described["config"]
    wrong = [
        words
        for words, right in {
            "its user is no number": config["User"].partition(":")[0].isdecimal()
            and not config["User"].startswith("0"),
            "it has no health check of its own": config["Healthcheck"]["Test"][:2] == ["CMD", "python"],
            "it is not stopped with TERM": config["StopSignal"] == "SIGTERM",
            "it names no license": bool(config["Labels"].get("org.opencontainers.image.licenses")),
            "its environment names a certificate or an index": not _mentions(config["Env"], "CERT", "INDEX", "PROXY"),
        }.items()
        if not right
    ]
    if wrong:
        raise Failed(f"{name}: {'; '.join(wrong)}")
    return f"user {config['User']}, health check, TERM, labels"


def _mentions(variables: list[str], *words: str) -> bool:
    return any(word in variable.upper() for variable in variables for word in words)


def _exists(buildah: str, name: str) -> bool:
    images = json.loads(run([buildah, "images", "--json"]) or "[]")
    return any(f"{PREFIX}/{name}:latest" in (image.get("names") or []) for image in images)


def _megabytes(name: str) -> float:
    """Return the size of an image, uncompressed."""
    podman = need("podman", "podman")
    return int(run([podman, "image", "inspect", f"{PREFIX}/{name}", "--format", "{{.Size}}"])) / 1e6
