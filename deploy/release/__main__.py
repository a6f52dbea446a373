"""`make release`: a clean checkout to a folder `dist` that a person publishes.

In this order: versions are compared, the changelog is cut, the committed sources are copied and built, the packages'
metadata is checked, checksums are written. If a step fails, the release ends with its reason. Changes one tracked file,
CHANGELOG.md, and sends nothing anywhere.
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
from .install import REPOSITORY
from .metadata import address_for_index, check_metadata
from .versions import VersionsDiffer, agreed

DIST = ROOT / "dist"
SOURCE = ROOT / ".tools" / "release"
_CHANGELOG = "CHANGELOG.md"
_NEXT = """
{dist} holds release {version}. Nothing is published. What a person does now:

  1. make bare-check (as root) and make deploy-check: both must pass
  2. read CHANGELOG.md and {dist}/NOTES.md; commit CHANGELOG.md if it changed
  3. git tag --sign v{version} && git push origin main v{version}
  4. try the upload on the index for tests, with a token of an account there, and look at the four pages:
       .venv/bin/uvx twine upload --repository testpypi {dist}/*.whl {dist}/*.tar.gz
     The text must be rendered, its links and pictures must work, and the version must be {version}.
  5. upload to the package index. A name belongs to whoever uploads to it first, and there is no other way to reserve
     one: upload all four at once. A version can't be replaced, not even after it was deleted.
       .venv/bin/uvx twine upload --repository pypi {dist}/*.whl {dist}/*.tar.gz
     The first upload needs a token of the whole account. Then make a token for each project, or name this repository
     as trusted publisher in the settings of each project, and delete the first token.
  6. check what users get, in an empty folder:
       python3 -m venv env && env/bin/pip install 'codec-gateway[demo]=={version}' && env/bin/codec-gateway demo
       env/bin/pip download --no-deps codec-gateway=={version} && sha256sum codec_gateway-{version}-*.whl
     The sum must be the one in {dist}/{sums}.
  7. if these were the first uploads: set PUBLISHED in deploy/release/install.py, run
     .venv/bin/python -m deploy.release.install, which rewrites how README and the pages install the packages, and
     commit that; the pages on the index show it from the next release on
  8. push the images to the registry, and the chart of deploy/helm
  9. make a release of the tag on the project's page, with NOTES.md as its text and the files of {dist} attached
 10. raise the version in every file that {versions} lists
"""
_NO_ADDRESS = """
Before any upload: set REPOSITORY in deploy/release/install.py to the address of the public repository, and make the
release again. Without it the packages name no project page, and links in their descriptions lead nowhere.
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
    if REPOSITORY:
        address_for_index(SOURCE, REPOSITORY, version)
    epoch = run(["git", "log", "-1", "--format=%ct"]).strip()
    _say("packages", build_packages(SOURCE, DIST, epoch))
    _say("metadata", check_metadata(DIST, has_address=bool(REPOSITORY)))
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
    sys.stdout.write(_NEXT.format(dist=DIST.name, version=version, sums=SUMS, versions="deploy/release/versions.py"))
    if not REPOSITORY:
        sys.stdout.write(_NO_ADDRESS)


def _copy_sources(into: Path) -> None:
    """Unpack what is committed."""
    archive = check_output(["git", "archive", "HEAD"], cwd=ROOT)
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(into, filter="data")


def _say(what: str, said: str) -> None:
    sys.stdout.write(f"{what:<12} {said}\n")


if __name__ == "__main__":
    main()
