"""The changelog: its text to the text of a release, or to what is wrong with it.

In the form of Keep a Changelog: a section per version, and in it a heading per kind of change. Knows no files and no
clock.
"""

import re
from typing import Final

KINDS: Final = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
UNRELEASED: Final = "Unreleased"
_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)
_KIND = re.compile(r"^### (.+)\n", re.MULTILINE)
_ENTRY = re.compile(r"^- (?:.+\n)(?:  .+\n)*", re.MULTILINE)


class ChangelogInvalid(Exception):
    """The changelog can't be cut as it is."""


def sections(text: str) -> dict[str, str]:
    """Return the text below each version's heading, newest first, by the text of the heading."""
    parts = _SECTION.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def faults(text: str) -> list[str]:
    """List what is wrong with each section's form: duplicate, unknown or misplaced kinds, and duplicate entries."""
    found: list[str] = []
    for name, body in sections(text).items():
        kinds = _KIND.findall(body)
        if kinds != [kind for kind in KINDS if kind in kinds]:
            found.append(f"{name!r} has the headings {kinds}, expected each once, in the order {list(KINDS)}")
        entries = [" ".join(entry.split()) for entry in _ENTRY.findall(body)]
        found += [f"{name!r} says twice {entry!r:.80}" for entry in dict.fromkeys(entries) if entries.count(entry) > 1]
    return found


def cut(text: str, version: str, day: str) -> str:
    """Turn Unreleased into this version, with this date, below an empty Unreleased."""
    if found := faults(text):
        raise ChangelogInvalid("; ".join(found))
    if version_section(text, version) is not None:
        raise ChangelogInvalid(f"there is a section for {version!r} already; raise the version, or release that one")
    if not _ENTRY.search(sections(text).get(UNRELEASED, "")):
        raise ChangelogInvalid(f"nothing stands under '## {UNRELEASED}'; there is nothing to release")
    return text.replace(f"## {UNRELEASED}\n", f"## {UNRELEASED}\n\n## {version} - {day}\n", 1)


def version_section(text: str, version: str) -> str | None:
    """Return what the changelog says about a version, None if it does not have it."""
    for name, body in sections(text).items():
        if name.split(" - ")[0] == version:
            return body.strip() + "\n"
    return None
