"""The pages, typed: all that a page shows to be typed, one after the other in a folder like a clone."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages import SERVER, TYPED, Clone, blocks_of

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "leaf_sdk/*.md", "tools/*/*.md")
    for path in ROOT.glob(pattern)
    if ".venv" not in path.parts
)
ELSEWHERE = {
    "docs/scaling.md": "tests/test_scaling.py",
    "docs/graduate.md": "tests/e2e/test_tutorial.py",
    **{f"docs/clients/{name.name}": "tests/e2e/test_client_pages.py" for name in ROOT.glob("docs/clients/*.md")},
    **{f"docs/agents/{name.name}": "tests/agents/page.py" for name in ROOT.glob("docs/agents/*.md")},
    **{
        f"examples/{name.parent.name}/README.md": "tests/examples/test_examples.py"
        for name in ROOT.glob("examples/*/*.md")
    },
}
"""Pages that have a test of their own."""
MAP = "codec-leaf map build model.gguf -o map.json"
PREPARED = {
    "docs/cli.md": """
        mkdir -p .cursor && cp servers.json .cursor/mcp.json
        printf '[upstreams.time]\\ncommand = ".venv/bin/codec-plain-time"\\npin = "block"\\n' > pinned.toml
        echo '[]' > tools.json && echo hello > output.txt
        codec-gateway serve --config pinned.toml --engine embedded --model model.gguf
        sed -i 's/"pinned": ".../"pinned": "000/' .local/state/codec-gateway/pins.json
    """,
    "docs/mcp-clients.md": MAP,
    "docs/openai-apps.md": "codec-gateway engine --model model.gguf",
    "leaf_sdk/README.md": "codec-gateway engine --model model.gguf",
    "tools/time_leaf/README.md": MAP,
}
"""What a page may take as given, besides the servers of the README."""
FAST = {"docs/bench.md", "docs/cli.md", "leaf_sdk/README.md"}
"""Pages whose model.gguf has one layer: they say what to ask, not what a model says to it."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


TO_RUN = [
    page
    for page in PAGES
    if name_of(page) not in ELSEWHERE and any(b.language in TYPED and b.why is None for b in blocks_of(page))
]


def commands_of(entry: dict[str, Any]) -> list[str]:
    """What a client would start that has this configuration."""
    started = [each for each in entry.get("mcpServers", {}).values() if "command" in each]
    return [shlex.join([each["command"], *each.get("args", [])]) for each in started]


@pytest.fixture
def clone(tmp_path: Path, page: Path, one_layer: Path) -> Iterator[Clone]:
    made = Clone(tmp_path, one_layer if name_of(page) in FAST else None)
    yield made
    made.close()


def test_server_is_not_taken_for_ready_by_what_the_one_before_it_said(tmp_path: Path) -> None:
    real, program = tmp_path / "real", tmp_path / "program"
    real.write_text("#!/bin/sh\nexit 1\n")
    program.write_text(SERVER.format(serves="'^ (serve) '", ready="ready", real=real, folder=tmp_path, engine=0))
    real.chmod(0o755)
    program.chmod(0o755)

    for _ in range(15):
        (tmp_path / "serve.log").write_text("ready\n")
        (tmp_path / "serve.pid").unlink(missing_ok=True)
        assert subprocess.run([program, "serve", "it"], capture_output=True, check=False).returncode == 1


@pytest.mark.engine
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", TO_RUN, ids=map(name_of, TO_RUN))
def test_what_a_page_shows_can_be_typed(page: Path, clone: Clone) -> None:
    (servers,) = [block.text for block in blocks_of(ROOT / "README.md") if block.text.startswith("cat > servers.json")]
    clone.type(servers)
    clone.type(PREPARED.get(name_of(page), ""))
    follow(page, clone)


def follow(page: Path, clone: Clone) -> None:
    """Type what a page shows. Programs that follow each other run as one: each goes on where the one before ended."""
    programs: list[str] = []
    new = False
    for block in blocks_of(page):
        if block.file is not None:
            (clone.folder / block.file).write_text(clone.here(block.text))
        elif block.why is not None or block.language not in (*TYPED, "json"):
            continue
        elif block.language == "python":
            programs.append(block.text)
            new = True
        else:
            if new:
                clone.run(programs)
                new = False
            for command in (
                commands_of(json.loads(clone.here(block.text))) if block.language == "json" else [block.text]
            ):
                clone.type(command)
    if new:
        clone.run(programs)


@pytest.mark.parametrize("page", PAGES, ids=map(name_of, PAGES))
def test_what_is_not_run_says_why(page: Path) -> None:
    reasons = [block.why for block in blocks_of(page) if block.why is not None]

    assert [why for why in reasons if len(why.split()) < 3] == []
    assert len(re.findall(r"^<!-- not run", page.read_text(encoding="utf-8"), re.MULTILINE)) == len(reasons)
    named = [name for why in reasons for name in re.findall(r"(?:tests|deploy|bench)/[\w./-]+", why)]
    assert [name for name in named if not (ROOT / name).exists()] == []
    targets = [target for why in reasons for target in re.findall(r"make ([a-z-]+)", why)]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [target for target in targets if f"\n{target}:" not in makefile] == []


def test_pages_with_a_test_of_their_own_are_named_there() -> None:
    assert [page for page, test in ELSEWHERE.items() if not (ROOT / test).exists() or not (ROOT / page).exists()] == []
