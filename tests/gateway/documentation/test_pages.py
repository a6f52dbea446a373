"""The pages that travel with the package: names, links, spelling, and what a browser gets of them."""

import re
import sys
import tomllib
from email.message import Message
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from gateway.documentation import pages
from gateway.documentation.pages import (
    ANYWHERE,
    PATTERNS,
    CommandSpelling,
    _spelling,
    html_form,
    open_pages,
    own_spelling,
    paths_of_pages,
    print_form,
)
from gateway.errors import ConfigError
from tests.cases import each_of

ROOT = Path(__file__).parents[3]
PIP = CommandSpelling("", "/home/ada/env/bin", "python")
PAGES = open_pages()
MARKDOWN = [name for name, path in PAGES.files.items() if path.endswith(".md")]


def test_every_file_has_a_name_of_its_own_and_is_packed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    packed = project["force-include"]
    found = {str(path.relative_to(ROOT)) for pattern in PATTERNS for path in ROOT.glob(pattern) if path.is_file()}

    assert set(PAGES.files.values()) == {path for path in found if "__pycache__" not in path}
    assert len(PAGES.files) == len(set(PAGES.files.values())) > 80
    assert all(into == f"gateway/documentation/repository/{path}" for path, into in packed.items())
    assert [path for path in PAGES.files.values() if not any(Path(path).is_relative_to(each) for each in packed)] == []


def test_hidden_files_and_links_of_a_clone_are_no_pages(tmp_path: Path) -> None:
    compiled = "examples/a/__pycache__/x.pyc"
    for path in ("examples/a/.env", "examples/.venv/lib/x.py", compiled, "examples/a/x.py", "docs/x.md", "key.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / "examples/a/link.md").symlink_to(tmp_path / "key.md")

    assert paths_of_pages(tmp_path) == ["docs/x.md", "examples/a/x.py"]


@each_of(
    ("word", "name"),
    [
        ("operate", "operate"),
        ("operate.md", "operate"),
        ("docs/operate.md#exit-codes", "operate"),
        ("../SECURITY.md", "SECURITY"),
        ("cursor", "clients/cursor"),
        ("clients/cursor", "clients/cursor"),
        ("examples", "examples/README"),
        ("examples/agent", "examples/agent/README"),
        ("agent.py", "examples/agent/agent.py"),
    ],
)
def test_page_is_found_by_what_a_person_types(word: str, name: str) -> None:
    assert PAGES.find(word) == name


@pytest.mark.parametrize("word", ["opperate", "", "/etc/passwd", "../../etc/passwd", "gateway.toml"])
def test_word_for_no_page_or_for_several_is_refused_with_the_next_step(word: str) -> None:
    with pytest.raises(ConfigError, match="codec-gateway docs lists all pages"):
        PAGES.find(word)


@each_of(
    ("word", "names"),
    [
        ("opperate", "'operate'"),
        ("becnh", "'bench'"),
        ("mcp", "'mcp-clients' or 'mcp-speed' or 'examples/leaf_mcp/README'"),
        ("security", "'SECURITY'"),
        ("desktop", "'clients/claude-desktop'"),
        ("nosuch", None),
        ("", None),
        (".md", None),
        ("(", None),
        ("zz" * 5000, None),
    ],
)
def test_only_pages_of_a_similar_name_are_suggested(word: str, names: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        PAGES.find(word)

    assert ("did you mean" in str(caught.value)) == (names is not None)
    assert names is None or f"did you mean {names}? " in str(caught.value)


def test_at_most_three_pages_are_suggested_and_decisions_last(tmp_path: Path) -> None:
    names = ("adr/0001-cache-of-everything", *(f"cache-of-{what}-of-all-sorts" for what in ("files", "ids", "slots")))
    found = type(PAGES)(tmp_path, {name: f"docs/{name}.md" for name in names})
    with pytest.raises(ConfigError) as caught:
        found.find("cache")

    assert f"did you mean {names[1]!r} or {names[2]!r} or {names[3]!r}? " in caught.value.message


def test_page_has_its_first_heading_as_its_title_and_a_folder_its_pages_alone(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("## no\n# A `b`\n# C\n")
    (tmp_path / "docs/b.md").write_text("nothing\n")
    files = {"a": "docs/a.md", "b": "docs/b.md", "p.svg": "docs/p.svg", "adr/c": "docs/adr/c.md", "README": "README.md"}
    found = type(PAGES)(tmp_path, files)

    assert [found.title(name) for name in ("a", "b")] == ["A `b`", "b"]
    assert found.of_folder("docs") == ["a", "b"]


def test_pages_are_those_beside_the_module_where_there_are_some_and_an_installation_without_any_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_PACKED", tmp_path)
    with pytest.raises(ConfigError, match=r"this installation has no pages: .*; install it again"):
        open_pages.__wrapped__()
    (tmp_path / "README.md").write_text("x")

    assert open_pages.__wrapped__() == type(PAGES)(tmp_path, {"README": "README.md"})


@each_of("name", MARKDOWN)
def test_links_of_every_page_lead_to_pages_or_are_words(name: str) -> None:
    text = print_form(PAGES, name, PIP)
    prose = re.sub(r"^ {0,3}```.*?^ {0,3}```$", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^()\s]+)\)", prose)]

    assert [each for each in targets if each and "://" not in each and each not in PAGES.files] == []
    assert "<!--" not in prose
    assert ".venv/bin/" not in text


@each_of("name", MARKDOWN)
def test_html_of_every_page_runs_and_loads_nothing(name: str) -> None:
    html = html_form(PAGES, name, PIP)

    assert re.findall(r"<(script|iframe|object|embed|form|style|link|meta)\b", html) == []
    assert [each for each in re.findall(r'src="([^"]*)"', html) if "://" in each] == []
    assert re.findall(r"<\w+ [^>]*\bon\w+=", html) == []
    folder = Path("/docs") / Path(name).parent
    for target in re.findall(r'(?:href|src)="([^"#:]+)["#]', html):
        found = (folder / target).resolve()
        assert str(found.relative_to("/docs")) in PAGES.files, target


def test_html_of_a_page_holds_no_markup_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.md").write_text("# A `b` c\n\n<script>alert(1)</script> [x](javascript:alert(1))\n\n| a |\n|---|\n")
    monkeypatch.setattr(pages, "_repository_url", lambda: None)
    html = html_form(type(PAGES)(tmp_path, {"x": "x.md"}), "x", PIP)

    assert '<h1 id="a-b-c">' in html
    assert "&lt;script&gt;" in html
    assert 'href="javascript' not in html


def test_line_break_in_a_cell_takes_effect_and_no_other_markup_does(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text(
        "| a |\n|---|\n| `x`<br>`y` <br onclick=e> <b>z</b> `<br>` |\n\n```\n<br>\n```\n", encoding="utf-8"
    )
    found = type(PAGES)(tmp_path, {"x": "x.md"})
    html = html_form(found, "x", PIP)

    assert re.search(r"<code>x</code><br ?/?>\s*<code>y</code> &lt;br onclick=e&gt; &lt;b&gt;z&lt;/b&gt;", html)
    assert html.count("&lt;br&gt;") == 2
    assert "| `x`; `y` <br onclick=e> <b>z</b> `<br>` |\n\n```\n<br>\n```" in print_form(found, "x", PIP)


def test_line_break_ends_no_emphasis(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("**a<br>b** c\n")

    assert re.search(r"<strong>a<br ?/?>\s*b</strong> c", html_form(type(PAGES)(tmp_path, {"x": "x.md"}), "x", PIP))


def test_program_is_printed_as_it_is_and_so_are_addresses_and_places_of_the_page_itself(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("<!-- x -->\n# [x](x.md) .venv/bin/python <br>\n")
    (tmp_path / "x.md").write_text("[a](https://a/x.md) [b](#place)\n")
    found = type(PAGES)(tmp_path, {"x.py": "x.py", "x": "x.md"})

    assert [print_form(found, name, PIP) for name in found.files] == [
        "<!-- x -->\n# [x](x.md) .venv/bin/python <br>\n",
        "[a](https://a/x.md) [b](#place)\n",
    ]


@each_of("name", MARKDOWN)
def test_no_page_shows_a_line_break_as_text(name: str) -> None:
    shown = re.sub(r"<(code|pre)>.*?</\1>", "", html_form(PAGES, name, PIP), flags=re.DOTALL)

    assert "&lt;br" not in shown


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (None, "[b](b) c (`bench/README.md` in the repository)"),
        ("https://forge/x/blob/v1", "[b](b) [c](https://forge/x/blob/v1/bench/README.md#h)"),
    ],
)
def test_link_to_a_file_outside_the_package_leads_to_the_repository(
    url: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("[b](b.md) [c](../bench/README.md#h)\n")
    monkeypatch.setattr(pages, "_repository_url", lambda: url)
    found = type(PAGES)(tmp_path, {"a": "docs/a.md", "b": "docs/b.md"})

    assert print_form(found, "a", PIP) == f"{words}\n"


@pytest.mark.parametrize(
    ("urls", "words"),
    [
        (["Homepage, https://a, b", "Repository, https://forge/x"], "[b](https://forge/x/blob/v1.2/b.py)"),
        (["Homepage, https://a"], "b (`b.py` in the repository)"),
        ([], "b (`b.py` in the repository)"),
        (None, "b (`b.py` in the repository)"),
    ],
)
def test_repository_is_the_one_that_the_package_names_at_its_version(
    urls: list[str] | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def about(_: str) -> Message:
        if urls is None:
            raise PackageNotFoundError
        told = Message()
        told["Version"] = "1.2"
        for url in urls:
            told["Project-URL"] = url
        return told

    monkeypatch.setattr(pages, "metadata", about)
    (tmp_path / "a.md").write_text("[b](b.py)\n")

    assert print_form(type(PAGES)(tmp_path, {"a": "a.md"}), "a", PIP) == f"{words}\n"


@pytest.mark.parametrize(
    ("spelling", "typed"),
    [
        (PIP, "codec-gateway | /home/ada/env/bin/codec-gateway | python | /home/ada/env/bin"),
        (CommandSpelling("b/", "/c/b", "b/python"), "b/codec-gateway | /c/b/codec-gateway | b/python | /c/b"),
        (ANYWHERE, "codec-gateway | /path/to/bin/codec-gateway | python | /path/to/bin"),
    ],
)
def test_page_names_programs_as_the_reader_types_them(spelling: CommandSpelling, typed: str) -> None:
    bin_folder = "/path/to/clone/.venv/bin"

    text = f".venv/bin/codec-gateway | {bin_folder}/codec-gateway | .venv/bin/python | {bin_folder}"
    assert spelling.page(text) == typed


def test_message_names_commands_as_the_reader_types_them() -> None:
    text = "start it with codec-gateway serve; codec-gateway is an MCP gateway; see codec-gateway pins show"
    spelling = CommandSpelling("bin/", "/x/bin", "python")

    assert PIP.message(text) == text
    assert spelling.message(text) == (
        "start it with bin/codec-gateway serve; codec-gateway is an MCP gateway; see bin/codec-gateway pins show"
    )


def test_program_is_named_alone_exactly_if_the_search_path_finds_the_one_that_runs(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "codec-gateway").write_text("#!/bin/sh\n")
        (tmp_path / folder / "codec-gateway").chmod(0o755)
    typed = f"{tmp_path}/a/codec-gateway"

    assert _spelling(typed, f"{tmp_path}/a:{tmp_path}/b").folder == ""
    assert _spelling(typed, f"{tmp_path}/b").folder == f"{tmp_path}/a/"
    assert _spelling(typed, "").folder == f"{tmp_path}/a/"
    assert _spelling(".venv/bin/codec-gateway", "").folder == ".venv/bin/"
    assert _spelling("/usr/lib/python3/gateway/__main__.py", "") == ANYWHERE


def test_python_is_named_alone_exactly_if_the_search_path_finds_the_one_with_this_package(tmp_path: Path) -> None:
    for name in ("codec-gateway", "python"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    typed, ours = f"{tmp_path}/codec-gateway", str(Path(sys.executable).parent)

    assert [_spelling(typed, search).python for search in (ours, str(tmp_path), "")] == [
        "python",
        sys.executable,
        sys.executable,
    ]
    assert _spelling(typed, "").absolute == str(tmp_path)


def test_spelling_is_that_of_the_command_line_and_its_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "codec-gateway").touch(0o755)
    monkeypatch.setattr(sys, "argv", [f"{tmp_path}/codec-gateway", "docs"])
    monkeypatch.setenv("PATH", "")
    assert own_spelling().program == f"{tmp_path}/codec-gateway"

    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_spelling().program == "codec-gateway"
