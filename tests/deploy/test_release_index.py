"""What a package index shows of a release, and how the pages say that the packages are installed."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from deploy.check.outcome import Failed
from deploy.release import install
from deploy.release.__main__ import _NEXT
from deploy.release.metadata import absolute_links, address_for_index, check_metadata, faults_of

ROOT = Path(__file__).parents[2]
AT = "https://forge/x/codec-gateway/blob/v1"
METADATA = """Metadata-Version: 2.4
Name: codec-leaf
Version: 0.1.0
Summary: s
License-Expression: Apache-2.0
Requires-Python: >=3.11
Project-URL: Repository, https://forge/x
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

# codec-leaf

{text} A description that is long enough to be one, with a table, a list and whatever else belongs to a page.
"""


def wheel(folder: Path, metadata: str) -> Path:
    path = folder / "codec_leaf-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("codec_leaf-0.1.0.dist-info/METADATA", metadata)
    return path


def test_pages_say_how_packages_are_installed_today() -> None:
    blocks = install.ONCE_PUBLISHED if install.PUBLISHED else install.TODAY
    for page in install.pages():
        text = page.read_text(encoding="utf-8")
        assert install.with_blocks(text, blocks) == text, f"{page}: run python -m deploy.release.install"

    assert set(install.TODAY) == set(install.ONCE_PUBLISHED)


def test_no_block_installs_one_of_our_packages_by_its_name_before_it_is_published() -> None:
    fences = re.compile(r"^ {0,3}```\w*\n(.*?)^ {0,3}```$", re.MULTILINE | re.DOTALL)
    typed = [
        (str(page.relative_to(ROOT)), line)
        for page in install.pages()
        for block in fences.findall(page.read_text(encoding="utf-8"))
        for line in block.replace("\\\n", " ").splitlines()
        if re.search(r"\b(?:pip|tool) install .*'?codec-", line)
    ]

    assert install.PUBLISHED or len(typed) >= 5
    unnamed = {page for page, line in typed if "git+" not in line and "dist/" not in line}
    assert install.PUBLISHED or not unnamed


def test_published_form_names_packages_and_nothing_else() -> None:
    done = install.with_blocks("a\n<!-- install: leaf -->\nold\n<!-- /install -->\nb\n", install.ONCE_PUBLISHED)

    assert "pip install 'codec-leaf[mcp]'\n" in done
    assert "git+" not in "".join(install.ONCE_PUBLISHED.values())
    assert done.startswith("a\n")
    assert done.endswith("<!-- /install -->\nb\n")


def test_links_of_a_description_lead_to_the_repository() -> None:
    text = "[a](docs/a.md#x) ![p](../p.png) [b](https://b) [c](#c)\n```\n[d](e.md)\n```\n"

    assert absolute_links(text, AT, "leaf_sdk") == (
        f"[a]({AT}/leaf_sdk/docs/a.md#x) ![p]({AT.replace('/blob/', '/raw/')}/p.png) [b](https://b) [c](#c)\n"
        "```\n[d](e.md)\n```\n"
    )


def test_file_that_an_index_would_take_has_no_fault(tmp_path: Path) -> None:
    assert list(faults_of(wheel(tmp_path, METADATA.format(text="[a](https://a)")))) == []
    assert check_metadata(tmp_path, has_address=True) == "1 files can be uploaded"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("Description-Content-Type: text/markdown\n", "", "expected text/markdown"),
        ("Project-URL: Repository, https://forge/x\n", "", "has no project urls"),
        ("License-Expression: Apache-2.0\n", "", "has no license expression"),
        ("Classifier: Typing :: Typed", "Classifier: Typing :: Wrong", "no such classifiers"),
        ("Version: 0.1.0", "Version: 0.2.0", "holds codec-leaf 0.2.0"),
        ("Version: 0.1.0", "Version: x", "version"),
        ("{text}", "[a](docs/a.md)", "lead nowhere, the first: 'docs/a.md'"),
    ],
)
def test_fault_of_metadata_is_named_with_its_file(before: str, after: str, words: str, tmp_path: Path) -> None:
    faults = list(faults_of(wheel(tmp_path, METADATA.replace(before, after, 1).replace("{text}", ""))))

    assert len(faults) == 1
    assert faults[0].startswith("codec_leaf-0.1.0-py3-none-any.whl: ")
    assert words in faults[0]
    with pytest.raises(Failed, match="codec_leaf"):
        check_metadata(tmp_path, has_address=True)


def test_packages_that_were_given_an_address_can_be_uploaded(tmp_path: Path) -> None:
    source, built = tmp_path / "source", tmp_path / "built"
    listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True)
    for name in listed.splitlines():
        if name.startswith(("gateway", "leaf_sdk", "tools", "docs", "examples")) or "/" not in name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    address_for_index(source, "https://forge/x/codec-gateway", "0.1.0")
    for project in ("", "leaf_sdk", "tools/time_leaf", "tools/plain_time"):
        tomllib.loads((source / project / "pyproject.toml").read_text())
        command = [str(Path(sys.executable).with_name("uv")), "build", "--wheel", "--offline", "--no-build-isolation"]
        subprocess.run(
            [*command, "-q", "--python", sys.executable, "--out-dir", str(built), str(source / project)], check=True
        )

    assert check_metadata(built, has_address=True) == "4 files can be uploaded"


def test_steps_name_each_thing_that_a_person_types() -> None:
    shown = _NEXT.format(dist="dist", version="1.2.3", sums="SHA256SUMS", versions="v")
    names = ("make bare-check", "--repository testpypi", "--repository pypi", "deploy.release.install", "SHA256SUMS")

    assert [name for name in names if name not in shown] == []
    assert max(map(len, shown.splitlines())) <= 120
