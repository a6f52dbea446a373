"""What a start costs is what it loads: a gateway of MCP servers alone loads nothing that only others need."""

import json
import signal
import subprocess
import sys

import pytest

RUN = """
import sys
from gateway.cli.app import run
code = run(sys.argv[1:])
print(*{name.partition(".")[0] for name in sys.modules}, *(name for name in sys.modules if name.startswith("gateway.")))
sys.exit(code)
"""
OF_TERMINALS = {"rich", "pygments", "markdown_it"}
OF_MODELS = {"tokenizers", "xllamacpp", "httpx2", "jsonschema", "referencing"}
OF_OTHERS = {
    *("jwt", "cryptography", "opentelemetry", "mcp"),
    *(
        "codec_demo",
        "gateway.cli.doctor",
        "gateway.workers",
        "gateway.replicas.connected",
        "redis",
        "gateway.shared.shared_store",
        *("jinja2", "markupsafe", "codec_console.pages"),
    ),
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, tells_time) -> set[str]:
    """Every module that a gateway with one server held, from its start to its end."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"time": tells_time}}))
    serve = ["serve", "--config", "mcp.json", "--port", "0", "--admin-port", "0"]
    with subprocess.Popen(
        [sys.executable, "-c", RUN, *serve], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert any('"gateway ready"' in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    return set(printed.split())


@pytest.mark.parametrize("modules", [OF_TERMINALS, OF_MODELS, OF_OTHERS], ids=["terminals", "models", "others"])
def test_gateway_of_servers_alone_loads_nothing_that_only_others_need(loaded: set[str], modules: set[str]) -> None:
    assert {"gateway", "structlog", "uvicorn", "gateway.app.process"} <= loaded
    assert loaded & modules == set()


def test_tables_are_loaded_by_the_command_that_shows_them() -> None:
    code = "import gateway.observe.logs, gateway.cli.status, sys; print('rich.table' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)

    assert done.stdout == "True\n"


def test_command_that_reads_a_report_loads_no_part_of_the_gateway_that_makes_it() -> None:
    code = "import gateway.cli.why, sys; print([name for name in sys.modules if name.startswith('gateway.agent')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)

    assert done.stdout == "[]\n"
