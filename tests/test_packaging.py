"""The distributions as a package index would get them: versions, pins, contents, and what an import costs."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import pytest

from gateway.documentation.pages import open_pages

ROOT = Path(__file__).parents[1]
KINDS = ("*.py", "*.pyi", "*.json", "*.proto", "*.tmpl", "*.html", "*.css", "*.js")
"""Files that a package is made of."""
MEMBERS = {
    "codec-gateway": (".", "gateway", "gateway"),
    "codec-bench": ("codec_bench", "codec_bench", "codec_bench"),
    "codec-console": ("codec_console", "codec_console", "codec_console"),
    "codec-demo": ("codec_demo", "codec_demo", "codec_demo"),
    "codec-leaf": ("leaf_sdk", "leaf_sdk", "leaf_sdk"),
    "codec-time-leaf": ("tools/time_leaf", "tools/time_leaf/src/time_leaf", "time_leaf"),
    "codec-plain-time": ("tools/plain_time", "tools/plain_time/src/plain_time", "plain_time"),
}
"""Distribution to (folder of its pyproject.toml, folder of its sources, name to import)."""
every_distribution = pytest.mark.parametrize("name", MEMBERS)


def project(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / MEMBERS[name][0] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def commands(name: str) -> dict[str, str]:
    """What the distribution can run, as programs of its own or as commands of the gateway."""
    fields = project(name)
    return fields.get("scripts", {}) or fields["entry-points"]["codec_gateway.commands"]


def requirements(name: str) -> list[str]:
    fields = project(name)
    return [*fields["dependencies"], *(r for group in fields.get("optional-dependencies", {}).values() for r in group)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels and sdists of every distribution, built from the sources as they are; nothing is fetched."""
    folder = tmp_path_factory.mktemp("built")
    command = [str(Path(sys.executable).with_name("uv")), "build", "--sdist", "--wheel", "--all-packages", "--quiet"]
    subprocess.run(
        [*command, "--offline", "--no-cache", "--no-build-isolation", "--out-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "VIRTUAL_ENV": sys.prefix},
        check=True,
        timeout=120,
    )
    return folder


@pytest.fixture(scope="module")
def wheels(folder: Path) -> dict[str, zipfile.ZipFile]:
    built = {path.name.partition("-")[0].replace("_", "-"): zipfile.ZipFile(path) for path in folder.glob("*.whl")}
    assert set(built) == set(MEMBERS)
    return built


@pytest.fixture(scope="module")
def sdists(folder: Path) -> dict[str, set[str]]:
    """The names in every sdist, without its own folder."""
    built: dict[str, set[str]] = {}
    for path in folder.glob("*.tar.gz"):
        with tarfile.open(path) as files:
            built[path.name.partition("-")[0].replace("_", "-")] = {
                member.name.partition("/")[2] for member in files.getmembers()
            }
    assert set(built) == set(MEMBERS)
    return built


def metadata(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = [entry for entry in wheel.namelist() if entry.endswith(f".dist-info/{name}")]
    return wheel.read(path).decode()


def test_distributions_have_one_version() -> None:
    assert len({project(name)["version"] for name in MEMBERS}) == 1


@every_distribution
def test_our_own_distributions_are_pinned_to_that_version(name: str) -> None:
    version = project(name)["version"]
    ours = [r for r in requirements(name) if re.split(r"[\[=]", r)[0] in MEMBERS]

    assert [r for r in ours if not r.endswith(f"=={version}") and not r.startswith(f"{name}[")] == []


@every_distribution
def test_python_and_license_are_the_same_everywhere(name: str) -> None:
    fields = project(name)

    assert (fields["requires-python"], fields["license"]) == (">=3.11", "Apache-2.0")


@every_distribution
def test_wheel_holds_the_package_whole_and_nothing_else(name: str, wheels: dict[str, zipfile.ZipFile]) -> None:
    _, folder, package = MEMBERS[name]
    files = [path for kind in KINDS for path in (ROOT / folder).rglob(kind)]
    sources = {f"{package}/{path.relative_to(ROOT / folder)}" for path in files}
    contents = {entry for entry in wheels[name].namelist() if ".dist-info/" not in entry}

    if name == "codec-gateway":
        sources |= {f"gateway/documentation/repository/{path}" for path in open_pages().files.values()}
    assert contents == sources | {f"{package}/py.typed"}
    assert not [entry for entry in contents if "test_" in entry or "conftest" in entry]


@every_distribution
def test_sdist_holds_the_package_and_nothing_of_others(name: str, sdists: dict[str, set[str]]) -> None:
    place, folder, _ = MEMBERS[name]
    inside = Path(folder).relative_to(place)
    others = {entry for entry in sdists[name] if not Path(entry).is_relative_to(inside)}
    about = {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE", ".gitignore"}

    assert {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE"} <= sdists[name]
    assert others - about <= (set(open_pages().files.values()) if name == "codec-gateway" else set())
    assert [entry for entry in sdists[name] if "test_" in entry or "__pycache__" in entry] == []


@every_distribution
def test_license_travels_with_every_wheel(name: str, wheels: dict[str, zipfile.ZipFile]) -> None:
    assert metadata(wheels[name], "licenses/LICENSE") == (ROOT / "LICENSE").read_text(encoding="utf-8")


@every_distribution
def test_wheel_declares_what_the_project_file_says(name: str, wheels: dict[str, zipfile.ZipFile]) -> None:
    fields = project(name)
    declared = HeaderParser().parsestr(metadata(wheels[name], "METADATA"))
    scripts = metadata(wheels[name], "entry_points.txt")

    assert (declared["Name"], declared["Version"]) == (name, fields["version"])
    assert set(declared.get_all("Provides-Extra", [])) == set(fields.get("optional-dependencies", {}))
    for command, target in commands(name).items():
        assert f"{command} = {target}" in scripts


@every_distribution
def test_command_of_the_wheel_can_be_imported(name: str) -> None:
    for target in commands(name).values():
        module, _, function = target.partition(":")
        code = f"import {module}; assert callable({module}.{function})"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after `code`."""
    script = f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-c", script]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split())


def test_import_of_the_sdk_costs_a_tool_author_nothing_of_the_gateway() -> None:
    loaded = loaded_by("import leaf_sdk")

    assert "leaf_sdk" in loaded
    assert loaded & {"gateway", "mcp", "tokenizers", "starlette", "pydantic", "typer", "httpx2", "asyncio"} == set()


def test_leaf_server_loads_nothing_of_the_gateway() -> None:
    loaded = loaded_by("import time_leaf.server")

    assert {"mcp", "time_leaf"} <= loaded
    assert loaded & {"gateway", "structlog", "prometheus_client", "rich"} == set()


def test_lock_names_no_host_and_every_file_by_its_hash() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if line and not line.startswith((" ", "#"))]

    assert not [line for line in lines if "://" in line]
    assert pinned
    assert [line for line in pinned if not re.match(r"[A-Za-z0-9._-]+(\[[\w,-]+\])?==\S+ (;.* )?\\$", line)] == []
    assert len(re.findall(r"\\\n    --hash=sha256:[0-9a-f]{64}", "\n".join(lines))) >= len(pinned)
