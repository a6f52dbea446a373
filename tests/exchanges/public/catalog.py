"""The servers: each one's package, what starts it, and one call that changes nothing. Data, and the folder they read.

Chosen for how much they differ: ten of each registry, on seven MCP libraries and three without one's types, from
protocol 2024-11-05 to 2025-11-25. `make exchanges-install` puts them into `.tools/public`. It starts nothing.
"""

import json
import sqlite3
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.toolchain import CACHE, node

FOLDER: Final = CACHE / "public"
"""Where `make exchanges-install` puts the packages."""
WORK: Final = "<work>"
"""Stands for the folder that the servers read."""
_MODULES: Final = FOLDER / "node" / "node_modules"
_PDF: Final = (
    "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)


@dataclass(frozen=True, slots=True)
class Public:
    """A server."""

    name: str
    package: str
    """Its name in the registry."""
    start: tuple[str, ...]
    """Its program, below the folder of its environment, and its arguments."""
    tool: str
    arguments: Mapping[str, Any]
    where: str = "node"
    """Its environment: `node`, or a virtual one."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    def configured(self, work: Path) -> dict[str, Any]:
        """Give it as a client's configuration names it, for a folder made by `prepare`."""
        program, *arguments = (word.replace(WORK, str(work)) for word in self.start)
        env = {name: value.replace(WORK, str(work)) for name, value in self.env.items()}
        if self.where == "node":
            return {"command": str(node()), "args": [str(_MODULES / program), *arguments], "env": env}
        return {"command": str(FOLDER / self.where / "bin" / program), "args": arguments, "env": env}

    def call(self, work: Path) -> dict[str, Any]:
        """Give the arguments of its call."""
        return json.loads(json.dumps(self.arguments).replace(WORK, str(work)))


def _npm(name: str, package: str, program: str, *arguments: str, tool: str, call: dict[str, Any], **env: str) -> Public:
    return Public(name, package, (f"{package}/{program}", *arguments), tool, call, env=env)


def _pypi(
    name: str, package: str, program: str, *arguments: str, where: str, tool: str, call: dict[str, Any], **env: str
) -> Public:
    return Public(name, package, (program, *arguments), tool, call, where, env)


_NPM: Final = (
    _npm("calc", "@coo-quack/calc-mcp", "dist/index.js", tool="math", call={"expression": "1/3 + 2^60"}),
    _npm("jsgit", "@cyanheads/git-mcp-server", "dist/index.js", tool="git_log", call={"path": f"{WORK}/repo"}),
    _npm(
        "eslint", "@eslint/mcp", "src/mcp-cli.js", tool="lint-files", call={"filePaths": [f"{WORK}/lint/code.js"]}
    ),
    _npm(
        "tasks", "@kazuph/mcp-taskmanager", "dist/index.js", tool="list_requests", call={},
        TASK_MANAGER_FILE_PATH=f"{WORK}/tasks.json",
    ),
    _npm(
        "pdf", "@modelcontextprotocol/server-pdf", "dist/index.js", "--stdio", f"{WORK}/one.pdf", tool="list_pdfs",
        call={},
    ),
    _npm(
        "xlsx", "@negokaz/excel-mcp-server", "dist/launcher.js", tool="excel_describe_sheets",
        call={"fileAbsolutePath": f"{WORK}/no-such.xlsx"},
    ),
    _npm(
        "echarts", "mcp-echarts", "build/index.js", tool="generate_pie_chart",
        call={"data": [{"category": "a", "value": 1.5}, {"category": "é", "value": 2}], "outputType": "option"},
    ),
    _npm("hello", "mcp-hello-world", "build/stdio.js", tool="echo", call={"message": "Zürich 漢字 🦄"}),
    _npm(
        "notes", "mcp-obsidian", "dist/index.js", f"{WORK}/vault", tool="read_notes", call={"paths": ["a.md", "no.md"]}
    ),
    _npm(
        "repomix", "repomix", "bin/repomix.cjs", "--mcp", tool="grep_repomix_output",
        call={"outputId": "0123456789abcdef", "pattern": "x"},
    ),
)  # fmt: skip
_PYPI: Final = (
    _pypi(
        "calculator", "mcp-server-calculator", "mcp-server-calculator", where="mcp1", tool="calculate",
        call={"expression": "2 ** 0.5"},
    ),
    _pypi(
        "sqlite", "mcp-server-sqlite", "mcp-server-sqlite", "--db-path", f"{WORK}/one.db", where="mcp1",
        tool="read_query", call={"query": "SELECT * FROM t"},
    ),
    _pypi(
        "shell", "mcp-shell-server", "mcp-shell-server", where="mcp1", tool="shell_execute",
        call={"command": ["cat", "a.md"], "directory": f"{WORK}/vault"}, ALLOW_COMMANDS="cat",
    ),
    _pypi(
        "editor", "mcp-text-editor", "mcp-text-editor", where="mcp1", tool="get_text_file_contents",
        call={"files": [{"file_path": f"{WORK}/vault/a.md", "ranges": [{"start": 1, "end": 2}]}]},
    ),
    # It writes a set of words into a description: their order would differ from run to run.
    _pypi(
        "cli", "cli-mcp-server", "cli-mcp-server", where="mcp1", tool="run_command", call={"command": "cat a.md"},
        ALLOWED_DIR=f"{WORK}/vault", PYTHONHASHSEED="0",
    ),
    _pypi("git", "mcp-server-git", "mcp-server-git", where="mcp2", tool="git_log", call={"repo_path": f"{WORK}/repo"}),
    _pypi(
        "alchemy", "mcp-alchemy", "mcp-alchemy", where="mcp2", tool="execute_query", call={"query": "SELECT * FROM t"},
        DB_URL=f"sqlite:///{WORK}/one.db",
    ),
    _pypi(
        "duckdb", "mcp-server-motherduck", "mcp-server-motherduck", "--db-path", ":memory:", "--read-write",
        where="mcp2", tool="execute_query", call={"sql": "SELECT 1/3 AS third, 'é' AS letter, 2^70 AS big"},
    ),
    _pypi(
        "excel", "excel-mcp-server", "excel-mcp-server", "stdio", where="mcp2", tool="describe_workbook",
        call={"path": f"{WORK}/no-such.xlsx"},
    ),
    _pypi(
        "word", "office-word-mcp-server", "word_mcp_server", where="mcp2", tool="get_document_info",
        call={"filename": f"{WORK}/no-such.docx"},
    ),
)  # fmt: skip
SERVERS: Final = {server.name: server for server in (*_NPM, *_PYPI)}


def prepare(work: Path) -> None:
    """Make the folder that the servers read: the same for all runs, which change nothing in it."""
    for name in ("vault/.obsidian", "lint", "repo"):
        (work / name).mkdir(parents=True)
    (work / "vault" / "a.md").write_text("# Größe\n\nÄ 漢字 🦄\n", encoding="utf-8")
    (work / "lint" / "eslint.config.js").write_text('export default [{ rules: { "no-unused-vars": "error" } }];\n')
    (work / "lint" / "code.js").write_text("const unused = 1;\n")
    (work / "one.pdf").write_text(_PDF)
    with sqlite3.connect(work / "one.db") as database:
        database.execute("CREATE TABLE t (name TEXT, n REAL)")
        database.execute("INSERT INTO t VALUES ('é', 0.1), (NULL, 1e300)")
    database.close()
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for command in (
        ("init", "--quiet"),
        (*who, "commit", "--quiet", "--allow-empty", "--message", "Erster Schritt: ä"),
    ):
        subprocess.run(["git", *command], cwd=work / "repo", check=True)
