"""What can become of a slot file while nobody looks, and the fault by which it is refused."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path


def flip(path: Path) -> None:
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 1
    path.write_bytes(held)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def link(path: Path) -> None:
    path.symlink_to(path.rename(path.with_name(f"{path.name} elsewhere")))


def second_name(path: Path) -> None:
    os.link(path, path.with_name(f"{path.name} elsewhere"))


def open_up(path: Path) -> None:
    path.chmod(0o644)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


SPOILT: Mapping[str, tuple[Callable[[Path], None], str]] = {
    "flipped": (flip, "digest"),
    "truncated": (truncate, "size"),
    "link": (link, "link"),
    "second name": (second_name, "link"),
    "pipe": (pipe, "link"),
    "open": (open_up, "mode"),
    "gone": (Path.unlink, "gone"),
    "directory gone": (lambda path: shutil.rmtree(path.parent), "gone"),
}


def spoil_folder(path: Path, fault: str) -> None:
    """Put what is not ours alone where slot files are to lie: a file, a link to a folder, or a folder of some mode."""
    if fault == "file":
        path.write_text("")
    elif fault == "link":
        (path.parent / "elsewhere").mkdir(mode=0o700)
        path.symlink_to(path.parent / "elsewhere")
    else:
        path.mkdir(mode=0o700)
        path.chmod({"mode": 0o755, "entry": 0o701, "group": 0o710}.get(fault, 0o700))
