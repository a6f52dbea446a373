"""How our packages are installed today: the blocks of the pages that say so, from one place.

`python -m deploy.release.install` writes each block between `<!-- install: NAME -->` and `<!-- /install -->` anew; a
test compares. To switch every page to the package index once the packages are published, set `PUBLISHED`; once the
repository has a public address, set `REPOSITORY`.
"""

import re
import sys
from pathlib import Path
from typing import Final

PUBLISHED: Final = False
"""Whether the packages can be installed from the package index by their names."""
REPOSITORY: Final = ""
"""Where the repository can be cloned, such as https://HOST/OWNER/codec-gateway; empty: it has no public address yet."""

_ROOT: Final = Path(__file__).parents[2]
_PAGES: Final = ("*.md", "docs/**/*.md", "examples/**/*.md", "codec_*/*.md", "leaf_sdk/*.md", "tools/*/*.md")
_BLOCK: Final = re.compile(r"(<!-- install: ([\w-]+) -->\n).*?(<!-- /install -->)", re.DOTALL)
_GIT: Final = f"git+{REPOSITORY or 'REPOSITORY'}"
_WHERE: Final = (
    ""
    if REPOSITORY
    else "\n`REPOSITORY` stands for the URL that you would clone from, such as `https://git.example/ada/codec-gateway`.\n"
)
_COMMANDS: Final = "codec-leaf,codec-time-leaf,codec-plain-time"
_LEAF: Final = f"{_GIT}#subdirectory=leaf_sdk"
_DEMO: Final = (
    f"'codec-console @ {_GIT}#subdirectory=codec_console' \\\n"
    f"    'codec-demo @ {_GIT}#subdirectory=codec_demo' \\\n"
    f"    'codec-time-leaf @ {_GIT}#subdirectory=tools/time_leaf' \\\n"
    f"    'codec-plain-time @ {_GIT}#subdirectory=tools/plain_time'"
)


def _typed(text: str, after: str = "") -> str:
    return f"<!-- not run: it downloads; make test-install installs the built packages -->\n```\n{text}\n```\n{after}"


TODAY: Final = {
    "gateway": _typed(
        f"uv tool install --with-executables-from {_COMMANDS} \\\n    'codec-gateway[demo] @ {_GIT}'\n"
        "codec-gateway demo",
        _WHERE,
    ),
    "gateway-pip": _typed(
        "python3 -m venv codec && . codec/bin/activate\n"
        f"pip install 'codec-gateway[demo] @ {_GIT}' \\\n    'codec-leaf @ {_LEAF}' \\\n    {_DEMO}\n"
        "codec-gateway demo",
        _WHERE,
    ),
    "leaf": _typed(f"pip install 'codec-leaf[mcp] @ {_LEAF}'", _WHERE),
    "fastmcp": _typed(
        f"python -m venv venv\nvenv/bin/pip install 'fastmcp>=4,<5' 'codec-leaf[mcp] @ {_LEAF}'",
        _WHERE,
    ),
    "time-leaf": _typed(
        f"pip install 'codec-leaf[mcp,cli] @ {_LEAF}' \\\n    'codec-time-leaf @ {_GIT}#subdirectory=tools/time_leaf'",
        _WHERE,
    ),
    "service": _typed(
        "python3 -m venv /opt/codec-gateway\n"
        f"/opt/codec-gateway/bin/pip install 'codec-gateway @ {_GIT}' 'codec-leaf @ {_LEAF}'",
        _WHERE,
    ),
}
ONCE_PUBLISHED: Final = {
    "gateway": _typed(f"uv tool install --with-executables-from {_COMMANDS} 'codec-gateway[demo]'\ncodec-gateway demo"),
    "gateway-pip": _typed(
        "python3 -m venv codec && . codec/bin/activate\npip install 'codec-gateway[demo]'\ncodec-gateway demo"
    ),
    "leaf": _typed("pip install 'codec-leaf[mcp]'"),
    "fastmcp": _typed("python -m venv venv\nvenv/bin/pip install 'fastmcp>=4,<5' 'codec-leaf[mcp]'"),
    "time-leaf": _typed("pip install codec-time-leaf 'codec-leaf[cli]'"),
    "service": _typed("python3 -m venv /opt/codec-gateway\n/opt/codec-gateway/bin/pip install codec-gateway"),
}


def with_blocks(text: str, blocks: dict[str, str]) -> str:
    """The page with every block as it should be. Raises `KeyError` for a block of an unknown name."""
    return _BLOCK.sub(lambda found: f"{found[1]}{blocks[found[2]]}{found[3]}", text)


def pages() -> list[Path]:
    """Every page that may have such a block."""
    return sorted(path for pattern in _PAGES for path in _ROOT.glob(pattern) if ".venv" not in path.parts)


def main() -> None:
    """Write the blocks of all pages."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = with_blocks(text, ONCE_PUBLISHED if PUBLISHED else TODAY)
        if new != text:
            page.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(_ROOT)}\n")


if __name__ == "__main__":
    main()
