"""Manifests from files: a path, a folder or bytes to the manifests in them.

The files in a folder of manifests were put there by someone else. So only files inside the folder are read: a symbolic
link out of it, a path with `..` and anything that is not a regular file are refused by name, and the size of every file
is bounded.
"""

import os
import stat
from pathlib import Path

from leaf_sdk.errors import FragmentCacheInvalid, ManifestInvalid

from .manifest import MAX_MANIFEST_BYTES, Manifest, parse_manifest

MANIFEST_NAME = "manifest.json"
MAX_MANIFESTS = 1000


def load_manifest(source: str | Path | bytes) -> Manifest:
    """Read one manifest: its bytes, its file, or the folder that holds `manifest.json`.

    Raises:
        ManifestInvalid: no such file, a link out of its folder, too large, or not a manifest.
    """
    if isinstance(source, bytes):
        return parse_manifest(source)
    path = Path(source)
    if path.is_dir():
        path = path / MANIFEST_NAME
    return parse_manifest(_manifest_bytes(path), source=str(path), folder=path.parent)


def load_manifests(folder: str | Path) -> tuple[list[Manifest], list[ManifestInvalid]]:
    """Read every manifest of a folder: its `*.json` files, and `manifest.json` in its subfolders, in order of name.

    Files that are not manifests are returned as errors beside the valid manifests, so that one bad file does not
    affect the others; a fragment cache beside its manifest is not an error.

    Raises:
        ManifestInvalid: the folder itself can't be read, or holds too many files.
    """
    root = Path(folder)
    try:
        names = sorted(root.iterdir())
    except OSError as error:
        raise ManifestInvalid(f"folder {str(root)!r} can't be read: {error}", source=str(root)) from error
    paths = [path for path in names if path.suffix == ".json"]
    paths += [path / MANIFEST_NAME for path in names if (path / MANIFEST_NAME).exists() and path.is_dir()]
    if len(paths) > MAX_MANIFESTS:
        raise ManifestInvalid(
            f"folder {str(root)!r} holds {len(paths)} files, expected at most {MAX_MANIFESTS}", source=str(root)
        )
    manifests: list[Manifest] = []
    errors: list[ManifestInvalid] = []
    for path in paths:
        try:
            data = _manifest_bytes(path, root)
            if not _is_cache(data):
                manifests.append(parse_manifest(data, source=str(path), folder=path.parent))
        except ManifestInvalid as error:
            errors.append(error)
    return manifests, errors


def _manifest_bytes(path: Path, folder: Path | None = None) -> bytes:
    try:
        return bytes_inside(folder or path.parent, path, MAX_MANIFEST_BYTES)
    except OSError as error:
        raise ManifestInvalid(f"manifest {str(path)!r} can't be read: {error}", source=str(path)) from error


def bytes_inside(folder: Path, path: Path, limit: int) -> bytes:
    """Read a regular file that is really inside a folder; raises OSError if it is not, or is larger than `limit`."""
    real = path.resolve(strict=True)
    if not real.is_relative_to(folder.resolve(strict=True)):
        raise OSError(f"it is a link to {str(real)!r}, outside its folder; copy the file instead")
    # Opened without following a link that was created in between, and without waiting for a pipe's writer.
    handle = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("it is not a regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"it is larger than {limit} bytes")
    return data


def _is_cache(data: bytes) -> bool:
    # Imported here: only a program with a folder of manifests pays for it.
    from .cache import parse_cache

    try:
        parse_cache(data)
    except FragmentCacheInvalid:
        return False
    return True
