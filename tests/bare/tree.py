"""A Debian tree that has what README names and nothing else, and scripts that an ordinary user runs in it.

Turns a release and a list of packages into a folder, kept for the next run, and a script into its exit code and log.
Each script has mounts and processes of its own (namespaces), so that neither can outlive it, whatever happens.
"""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

USER: Final = "newcomer"
PROGRAMS: Final = ("debootstrap", "unshare", "chroot", "ip")
"""What this needs here; `make bare-check-install` brings it."""
_INDEX: Final = re.compile(
    r"(PIP|UV|SSL|REQUESTS|CURL)_\w*(CERT|INDEX|HOST|PROXY|LINKS|TIMEOUT|TLS|BUNDLE)\w*|\w+_PROXY", re.IGNORECASE
)
"""Variables that say how this machine reaches package indexes; the files that they name are mounted into the tree."""
_SETTINGS: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/uv/uv.toml")
_LEFT: Final = 99
"""The exit code of a script that succeeded and left processes running."""
_ENTER: Final = r"""
root=$1 script=$2 user=$3 network=$4
shift 4
[ "$network" = yes ] || ip link set lo up
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=1777,size=1m tmpfs "$root/mnt"
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}"; [ -e "$root$1" ] || : >"$root$1"; fi
  mount --bind -o ro "$1" "$root$1"
  shift
done
shift
id=$(stat -c %u "$root/home/$user") code=0
set -- setpriv --reuid "$id" --regid "$id" --init-groups --no-new-privs env -i "$@" bash -ec "$script"
chroot "$root" "$@" || code=$?
cd "$root/proc"
for try in 1 2 3 4 5 6 7 8 9 10; do
  sleep 0.5  # While it waits, this shell, which is process 1 here, reaps what has ended.
  set -- [0-9]*
  [ $# != 1 ] || exit $code
done
shift
for process; do
  echo "left running: $(tr '\0' ' ' <"$process/cmdline" | cut -c -200)"
done
[ $code != 0 ] || code=LEFT
exit $code
"""


class Tree:
    """The tree of one release. `home` is its user's folder, seen from outside."""

    def __init__(self, folder: Path, release: str, packages: list[str]) -> None:
        self.release, self.packages = release, packages
        digest = sha256(" ".join(sorted(packages)).encode()).hexdigest()[:12]
        self.root = folder / f"{release}-{digest}"
        self.home = self.root / "home" / USER

    def make(self, sink: IO[bytes]) -> int:
        """Make it, unless an earlier run did, with an empty home and an empty /tmp; returns debootstrap's exit code."""
        if not self.root.exists():
            for other in self.root.parent.glob(f"{self.release}-*"):
                shutil.rmtree(other)
            half = self.root.with_name(f"{self.release}-half")
            # Its mounts end with it, too.
            command = [
                "unshare",
                "--mount",
                "debootstrap",
                "--variant=minbase",
                f"--include={','.join(self.packages)}",
                self.release,
                half,
            ]
            done = subprocess.run(command, stdout=sink, stderr=subprocess.STDOUT, check=False)
            if done.returncode:
                return done.returncode
            subprocess.run(["chroot", half, "useradd", "--create-home", "--shell", "/bin/bash", USER], check=True)
            half.rename(self.root)
        for folder in (self.home, self.root / "tmp"):
            for each in folder.iterdir():
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        return 0

    def run(self, script: str, log: Path, *, network: bool = True, seconds: float = 900) -> int:
        """Run a script as the user, in bash; returns its exit code (99: it left processes running, 124: no end)."""
        index = {name: value for name, value in os.environ.items() if _INDEX.fullmatch(name)}
        own = os.environ.get("PIP_CONFIG_FILE", str(Path("~/.config/pip/pip.conf").expanduser()))
        if Path(own).is_file():
            index["PIP_CONFIG_FILE"] = own
        mounts = [path for path in _with_what_they_name([*_SETTINGS, *index.values()]) if Path(path).exists()]
        user = {"HOME": f"/home/{USER}", "USER": USER, "PATH": "/usr/local/bin:/usr/bin:/bin"}
        variables = [f"{name}={value}" for name, value in {**index, **user}.items()]
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *([] if network else ["--net"])]
        enter += ["sh", "-euc", _ENTER.replace("LEFT", str(_LEFT)), "sh"]
        enter += [str(self.root), script, USER, "yes" if network else "no", *dict.fromkeys(mounts), "--", *variables]
        with log.open("wb") as sink, suppress(subprocess.TimeoutExpired):
            # In a session of its own: Ctrl-C ends this program, which ends `unshare`, and with it all in the namespace.
            return subprocess.run(
                enter,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                timeout=seconds,
                check=False,
            ).returncode
        return 124


def _with_what_they_name(values: list[str]) -> list[str]:
    """The paths among these, and the files that the settings among them name, such as a bundle of certificates."""
    paths = [value for value in values if value.startswith("/")]
    texts = [Path(path).read_text() for path in paths if path.endswith((".conf", ".toml")) and Path(path).is_file()]
    return [*paths, *(named for text in texts for named in re.findall(r"=\s*[\"']?(/[^\s\"']+)", text))]
