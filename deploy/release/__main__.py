"""`make release`: a clean checkout to a folder `dist` that a person publishes.

In this order: versions are compared, the changelog is cut, the committed sources are copied and built, checksums are
written. If a step fails, the release ends with its reason. Changes one tracked file, CHANGELOG.md, and sends nothing
anywhere.
"""

import shutil
import sys
import tarfile
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from subprocess import check_output

from deploy.check.outcome import ROOT, Failed, Skipped, run

from .artifacts import SUMS, build_images, build_packages, checksums, list_components
from .changelog import ChangelogInvalid, cut, version_section
from .versions import VersionsDiffer, agreed

DIST = ROOT / "dist"
SOURCE = ROOT / ".tools" / "release"
_CHANGELOG = "CHANGELOG.md"
_NEXT = """
{dist} holds release {version}. Nothing is published. What a person does now:

  1. read CHANGELOG.md and {dist}/NOTES.md; commit CHANGELOG.md if it changed
  2. git tag --sign v{version} && git push origin main v{version}
  3. upload the wheels and sdists to the package index: uv publish {dist}/*.whl {dist}/*.tar.gz
  4. push the images to the registry, and the chart of deploy/helm
  5. make a release of the tag on the project's page, with NOTES.md as its text and the files of {dist} attached
  6. raise the version in every file that {versions} lists
"""


def main() -> None:
    """Make the release, or say what prevents it."""
    try:
        _release()
    except (ChangelogInvalid, VersionsDiffer, Failed) as error:
        sys.exit(f"release: {error}")


def _release() -> None:
    if changed := run(["git", "status", "--porcelain"]).strip():
        raise Failed(f"there are changes that are not committed, and a release is made of what is:\n{changed}")
    version = agreed(ROOT)
    _say("version", f"{version}, in every file that states one")
    text = (ROOT / _CHANGELOG).read_text(encoding="utf-8")
    released = text if version_section(text, version) else cut(text, version, datetime.now(UTC).date().isoformat())
    revision = run(["git", "rev-parse", "HEAD"]).strip()
    for folder in (DIST, SOURCE):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    _copy_sources(SOURCE)
    (SOURCE / _CHANGELOG).write_text(released, encoding="utf-8")
    epoch = run(["git", "log", "-1", "--format=%ct"]).strip()
    _say("packages", build_packages(SOURCE, DIST, epoch))
    try:
        _say("images", build_images(SOURCE, DIST, version, revision))
    except Skipped as missing:
        _say("images", f"not built: {missing}")
    _say("components", list_components(SOURCE, DIST, version))
    (DIST / "NOTES.md").write_text(version_section(released, version) or "", encoding="utf-8")
    (DIST / SUMS).write_text(checksums(DIST), encoding="utf-8")
    _say("checksums", f"{SUMS} of {len(list(DIST.iterdir())) - 1} files")
    (ROOT / _CHANGELOG).write_text(released, encoding="utf-8")
    _say("changelog", "as it was" if released == text else f"Unreleased is now {version}: commit it")
    sys.stdout.write(_NEXT.format(dist=DIST.name, version=version, versions="deploy/release/versions.py"))


def _copy_sources(into: Path) -> None:
    """Unpack what is committed."""
    archive = check_output(["git", "archive", "HEAD"], cwd=ROOT)
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(into, filter="data")


def _say(what: str, said: str) -> None:
    sys.stdout.write(f"{what:<12} {said}\n")


if __name__ == "__main__":
    main()
