"""The documentation says what is true: links, commands, options, files, examples, floors and exit codes."""

import functools
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple, get_args

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from gateway.agent.events import GenerationFinished, ToolFinished
from gateway.cli import exit_codes
from gateway.cli.app import build_app
from gateway.config.load import load_config
from gateway.config.overrides import OWN_TOOLS, RESULT_TOOLS
from gateway.observe.prompt_losses import WORDS, LossReason
from gateway.serve.generation.codec_field import turn_numbers
from gateway.serve.openai.chat_reply import ChatReply
from leaf_sdk.cli.commands import app as leaf_app
from tests.cases import each_of

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "leaf_sdk/*.md", "tools/*/*.md")
    for path in ROOT.glob(pattern)
    if ".venv" not in path.parts
)
LINKED = sorted(
    {
        *PAGES,
        *(
            path
            for folder in ("bench", "codec_bench", "codec_console", "codec_demo", "conformance", "tests")
            for path in ROOT.glob(f"{folder}/**/*.md")
        ),
    }
)
"""Every page of the repository: those that are measured or tested elsewhere, too."""
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
PACKAGES = {"codec_gateway", *(path.name for path in ROOT.glob("codec_*"))}
METHODS = {"tools/call", "tools/list"}
"""Names of MCP that look like paths of ours."""
FLOORS = {"Floors of the gateway": "gateway", "Floors of the SDK": "SDK"}
every_page = each_of("page", PAGES)


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    language: str
    text: str


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks_of(page: Path) -> list[Block]:
    """Fenced blocks; one inside a list is taken out of its indentation. From four spaces on, Markdown sees no fence."""
    found = re.finditer(r"^( {0,3})```(\w*)\n(.*?)^\1```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [
        Block(str(page.relative_to(ROOT)), match[2], re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE))
        for match in found
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def blocks_in(language: str) -> list[Block]:
    # Settings of agents are no settings of ours; `tests/agents` starts these agents with them.
    return [block for block in BLOCKS if block.language == language and not block.page.startswith("docs/agents/")]


def prose_of(page: Path) -> str:
    return re.sub(r"^( {0,3})```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_pages_were_found() -> None:
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/architecture.md", "leaf_sdk/README.md"} <= set(NAMES)


@each_of("page", LINKED)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        path, _, anchor = target.partition("#")
        if path.startswith(("https:", "http:")):
            continue
        found = page.parent / path if path else page
        assert found.exists(), f"{target!r} leads nowhere"
        if anchor:
            assert anchor in anchors_of(found.read_text(encoding="utf-8")), f"no heading for {target!r}"
    shown = re.findall(r"\[([\w./-]+\.md)\]\(", prose_of(page))
    assert [name for name in shown if not (ROOT / name).exists()] == []


def test_every_page_of_the_repository_is_followed_for_links() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert {ROOT / name for name in listed.splitlines()} <= set(LINKED)


def test_every_page_is_reached_from_the_index_and_the_index_from_the_readme() -> None:
    seen, waiting = set[Path](), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            targets = re.findall(r"\]\(([^)\s#]+\.md)(?:#[^)\s]*)?\)", prose_of(page))
            waiting += [(page.parent / target).resolve() for target in targets if "://" not in target]

    assert {page.resolve() for page in PAGES} - seen <= {ROOT / "README.md"}
    assert "](docs/index.md)" in read("README.md")


@every_page
def test_files_that_are_named_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:gateway|leaf_sdk|tests|tools|docs|bench|deploy|examples)/[\w./-]+)`", page.read_text("utf-8")
    )

    assert [name for name in named if name not in METHODS and not (ROOT / name).exists()] == []


def test_files_that_the_code_names_exist() -> None:
    """From the folder of the module that names them, or from one above it."""
    modules = [path for package in ("gateway", "leaf_sdk") for path in sorted((ROOT / package).rglob("*.py"))]
    named = [
        (str(path.relative_to(ROOT)), name, [folder / name for folder in path.parents])
        for path in modules
        for name in re.findall(r"`([\w/]+\.(?:py|js))`", path.read_text(encoding="utf-8"))
    ]

    assert len(named) > 100
    assert [(path, name) for path, name, places in named if not any(place.exists() for place in places)] == []


@every_page
def test_pages_name_no_package_host_and_no_folder_of_one_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert re.findall(r"\b(?:pypi|pythonhosted|npmjs|crates|ghcr|docker)\.(?:org|com|io)\b", text) == []
    assert re.findall(r"(?<![\w.~}])/(?:work|root|home|tmp)/[\w.]*", text) == []


def options_of(command: TyperCommand | TyperGroup) -> set[str]:
    return {"-h", "--help"} | {name for option in command.params for name in option.opts}


@functools.cache
def commands() -> dict[str, set[str]]:
    """Every command that the pages may show, `codec-leaf map build` too, with its options."""
    found: dict[str, set[str]] = {}
    waiting = [("codec-gateway", get_command(build_app())), ("codec-leaf", get_command(leaf_app))]
    while waiting:
        name, command = waiting.pop()
        assert isinstance(command, TyperCommand | TyperGroup)
        found[name] = options_of(command)
        if isinstance(command, TyperGroup):
            waiting += [(f"{name} {word}", inner) for word, inner in command.commands.items()]
    return found


def shown_commands(page: Path) -> Iterator[str]:
    """What a page shows of our commands, one line each: in blocks without a language, and in code spans."""
    for block in blocks_of(page):
        if block.language in ("", "sh"):
            yield from block.text.splitlines()
    yield from re.findall(r"`([^`\n]+)`", prose_of(page))


@every_page
def test_commands_and_options_that_are_shown_exist(page: Path) -> None:
    known = commands()
    for line in shown_commands(page):
        for shown in re.findall(r"(?<![\w-])(?:[\w./-]*/)?(codec-(?:gateway|leaf)(?: [^|;&)$#]*)?)", line):
            words = shown.partition(" -- ")[0].replace("|", " ").split()
            name = words.pop(0)
            while words and f"{name} {words[0]}" in known:
                name = f"{name} {words.pop(0)}"
            is_group = any(other.startswith(f"{name} ") for other in known)
            assert not (is_group and words and words[0].isalpha()), f"no such command: {shown!r}"
            assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known[name], shown


@every_page
def test_options_that_are_named_alone_exist(page: Path) -> None:
    known = set[str]().union(*commands().values()) | {"--http", "--require-hashes", "--no-build"}
    named = re.findall(r"`(--[a-z-]+)[^`]*`", prose_of(page))

    assert set(named) <= known


def test_options_and_commands_are_seen_by_these_tests() -> None:
    shown = {line for page in PAGES for line in shown_commands(page)}

    assert ".venv/bin/codec-gateway serve --config servers.json --engine embedded" in shown
    assert "--admin-port" in commands()["codec-gateway serve"]
    assert "-o" in commands()["codec-leaf map build"]


@every_page
def test_make_targets_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    shown = [word for line in shown_commands(page) for word in re.findall(r"^make ([a-z|-]+)", line)]

    assert {target for word in shown for target in word.split("|")} <= targets


def test_every_make_target_is_in_the_contributors_page() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", read("Makefile"), re.MULTILINE)

    assert {t for t in targets if t not in ("help", "demo", "clean")} <= set(
        re.findall(r"^make ([a-z-]+)", read("CONTRIBUTING.md"), re.MULTILINE)
    )


@each_of("block", blocks_in("json"))
def test_json_examples_load(block: Block, tmp_path: Path) -> None:
    document = json.loads(block.text)
    if set(document) == {"turns", "tool_results"}:
        return
    environ = {"SEARCH_TOKEN": "t", "CODEC_GATEWAY_INPUT_CODEC_TOKEN": "t"}
    (tmp_path / "mcp.json").write_text(block.text)

    config = load_config(tmp_path / "mcp.json", environ=environ, cwd=tmp_path)

    assert len(config.upstreams) == len(document.get("mcpServers") or document["servers"])


def test_answer_that_is_explained_has_the_keys_of_an_answer() -> None:
    shown = next(json.loads(block.text) for block in BLOCKS if block.language == "json" and '"turns"' in block.text)
    finished = ToolFinished("id", "name", "{}", "text", "leaf", 1, 0, is_error=False, seconds=0.0)
    turn = GenerationFinished(**{field.name: None for field in fields(GenerationFinished)} | {"ttft": 0.0, "held": 0})
    reply = ChatReply("model", 0, usage_chunk=False)
    (chunk,) = reply.feed(finished)

    assert set(shown["tool_results"][0]) == set(chunk["codec"]["tool_result"])
    assert set(shown["turns"][0]) == set(turn_numbers(turn)) == set(words_explained("key of a turn"))


def test_every_reason_for_lost_ids_is_explained() -> None:
    assert tuple(words_explained("`reason`")) == get_args(LossReason) == tuple(WORDS)
    shown = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", read("docs/openai-apps.md"))
    assert [words for reason, words in WORDS.items() if f"| `{reason}` | {words}" not in shown] == []


def words_explained(head: str) -> list[str]:
    """The words of the first column of the table with this head."""
    _, _, table = read("docs/openai-apps.md").partition(f"| {head} |")
    return re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]*) \|", table.split("\n\n")[0], re.MULTILINE)))


@each_of("block", blocks_in("toml"))
def test_toml_examples_load(block: Block, tmp_path: Path) -> None:
    secrets = dict.fromkeys(("SEARCH_TOKEN", "SEARCH_SECRET", "DOCS_SECRET", "LLAMA_API_KEY"), "t")
    environ = {**secrets, "CODEC_MAP_HASH": "sha256:0"}
    (tmp_path / ".cursor").mkdir(exist_ok=True)
    (tmp_path / ".cursor" / "mcp.json").write_text('{"mcpServers": {}}')
    (tmp_path / "example.toml").write_text(block.text)
    for folder in re.findall(r'^manifest = "(\w+)"$', block.text, re.MULTILINE):
        (tmp_path / folder).mkdir(exist_ok=True)

    config = load_config(tmp_path / "example.toml", environ=environ, cwd=tmp_path)

    assert len(config.upstreams) == len(tomllib.loads(block.text).get("upstreams", {}))


@each_of("block", blocks_in("python"))
def test_python_examples_are_python(block: Block) -> None:
    compile(block.text, block.page, "exec")


def test_servers_file_of_the_readme_loads_from_its_own_folder(tmp_path: Path) -> None:
    written = re.search(r"cat > servers\.json <<'END'\n(.*?)^END$", read("README.md"), re.DOTALL | re.MULTILINE)
    assert written is not None
    (tmp_path / "servers.json").write_text(written[1])

    config = load_config(tmp_path / "servers.json", environ={}, cwd=ROOT)

    assert [server.command for server in config.upstreams] == [f"{tmp_path}/.venv/bin/codec-plain-time"]


def test_programs_of_the_readme_are_python() -> None:
    programs = re.findall(r"python - <<'END'\n(.*?)^END$", read("README.md"), re.DOTALL | re.MULTILINE)

    assert len(programs) == 1
    for program in programs:
        compile(program, "README.md", "exec")


def test_every_decision_is_listed() -> None:
    decisions = sorted(path.name for path in (ROOT / "docs" / "adr").glob("0*.md"))
    listed = sorted(set(re.findall(r"\b(0\d{3}-[\w-]+\.md)", read("docs/adr/README.md"))))

    assert listed == decisions
    assert len({name[:4] for name in decisions}) == len(decisions)


def test_every_decision_has_the_same_three_parts() -> None:
    for path in (ROOT / "docs" / "adr").glob("0*.md"):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"], path.name
        assert text.startswith(f"# {path.name[:4]} ")
        assert len(text.splitlines()) <= 60


def test_architecture_fits_on_a_page() -> None:
    assert len(read("docs/architecture.md").splitlines()) <= 120


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_floors_are_those_that_are_checked(page: str) -> None:
    contracts = {c["name"]: c for c in tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]}
    for name, word in FLOORS.items():
        assert f"- {word}: `{' > '.join(contracts[name]['layers'])}`" in read(page)


def test_exit_codes_of_the_operators_page_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", read("docs/operate.md"), re.MULTILINE)
    codes = {value for name, value in vars(exit_codes).items() if name.isupper()}

    assert sorted(int(code) for code, _ in rows) == sorted(codes)


def test_ports_of_the_operators_page_are_the_defaults() -> None:
    serve = load_config(None, environ={}, cwd=ROOT / "docs").serve
    ports = re.findall(r"^\| (\d+) \(`serve\.(\w+)`", read("docs/operate.md"), re.MULTILINE)

    assert {name: int(port) for port, name in ports} == {"port": serve.port, "admin_port": serve.admin_port}


@every_page
def test_metrics_that_are_named_exist(page: Path) -> None:
    listed = set(re.findall(r"^\| `(codec_\w+)`", read("docs/metrics.md"), re.MULTILINE))
    named = set(re.findall(r"`(?:rate\()?(codec_[a-z_]+[a-z])\b[^`]*`", page.read_text(encoding="utf-8")))

    assert {name for name in named if name not in listed} <= {"codec_leaf", *OWN_TOOLS, *RESULT_TOOLS, *PACKAGES}


def test_picture_of_the_readme_is_text_that_any_viewer_shows() -> None:
    picture = read("docs/path.svg")

    assert "docs/path.svg" in read("README.md")
    assert "<script" not in picture
    assert set(re.findall(r"https?://[^\s\"]+", picture)) == {"http://www.w3.org/2000/svg"}
