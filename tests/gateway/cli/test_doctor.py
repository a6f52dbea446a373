"""`codec-gateway doctor` on real servers, well and unwell."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gateway.cli import exit_codes
from gateway.cli.app import run
from gateway.cli.checkup import Checkup, ServerCheck
from gateway.cli.doctor import print_checkup
from gateway.proxy.upstream.items.tool_pins import PinFile
from leaf_sdk import make_meta_tokenizer, wrap_tool_call
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.vocab import map_digest

TEXT = "It is sunny. <|im_end|>"


def text(**more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": TEXT, **more}]}


@pytest.fixture(scope="module")
def map_file(tmp_path_factory: pytest.TempPathFactory, model_map_bytes: bytes) -> Path:
    path = tmp_path_factory.mktemp("map") / "map.json"
    path.write_bytes(model_map_bytes)
    return path


@pytest.fixture(scope="module")
def leaf_result(map_file: Path) -> dict[str, Any]:
    """A result with the ids that a leaf tool of this map ships."""
    meta = make_meta_tokenizer(map_path=str(map_file), map_hash=map_digest(map_file.read_bytes()))
    return wrap_tool_call(text(), meta)


@pytest.fixture
def found(command):
    def run(file: Path, *words: str | Path, code: int = exit_codes.OK) -> dict[str, Any]:
        ran = command("doctor", "--json", "-c", file, *words)
        assert ran.code == code, ran
        return json.loads(ran.out)

    return run


def own(file: Path, text: str) -> None:
    (file.parent / "codec-gateway.toml").write_text(text)


def test_server_that_works_is_described(servers, tool, found) -> None:
    offer = {
        "tools": [tool(), tool("list")],
        "prompts": [{"name": "p"}],
        "resources": [{"uri": "a:b", "name": "b"}],
        "result": text(),
    }
    report = found(servers(up=offer))

    (server,) = report["servers"]
    assert report["ok"] is True
    assert (server["name"], server["transport"], server["reached"]) == ("up", "stdio", True)
    assert server["protocol"] == "2025-11-25"
    assert server["capabilities"] == ["prompts", "resources", "tools"]
    assert (server["prompts"], server["resources"], server["problems"]) == (1, 1, [])
    assert [each["name"] for each in server["tools"]] == ["look", "list"]
    assert all(each["tokens"] > 10 and each["estimated"] for each in server["tools"])
    assert 0 < server["seconds"] < 20


def test_dead_server_is_a_problem_and_hides_no_other(servers, tool, found) -> None:
    dead = {"command": sys.executable, "args": ["-c", ""]}
    report = found(servers(up={"tools": [tool()], "result": text()}, dead=dead), code=exit_codes.FAILED)

    up, down = report["servers"]
    assert (up["reached"], down["reached"]) == (True, False)
    assert down["problems"]
    assert report["ok"] is False


def test_tool_that_may_not_be_tried_is_unknown_and_is_not_called(servers, tool, found) -> None:
    tools = [
        tool("writes", annotations={"readOnlyHint": False}),
        tool("silent", annotations=None),
        tool("asks", inputSchema={"type": "object", "required": ["city"]}),
    ]
    report = found(servers(up={"tools": tools, "error": "called"}))

    details = {each["name"]: each["ids"] for each in report["servers"][0]["tools"]}
    assert {each["word"] for each in details.values()} == {"unknown"}
    assert (
        details["writes"]["detail"]
        == details["silent"]["detail"]
        == ("it was not called: it is not declared read-only (readOnlyHint)")
    )
    assert details["asks"]["detail"] == "it was not called: it needs arguments"


def test_no_tool_is_called_where_the_operator_does_not_want_it(servers, tool, found) -> None:
    report = found(servers(up={"tools": [tool()], "error": "called"}), "--no-call")

    assert report["servers"][0]["tools"][0]["ids"]["detail"] == "no tool is called (--no-call)"


def test_leaf_is_known_by_ids_that_stand_the_checks_of_the_engines_map(
    servers, tool, found, leaf_result, map_file
) -> None:
    file = servers(leaf={"tools": [tool()], "result": leaf_result}, plain={"tools": [tool()], "result": text()})
    own(file, f'[tokens]\nmap = "{map_file}"\n')

    leaf, plain = found(file)["servers"]

    assert leaf["tools"][0]["ids"]["word"] == "leaf"
    assert map_digest(map_file.read_bytes())[:19] in leaf["tools"][0]["ids"]["detail"]
    assert plain["tools"][0]["ids"]["word"] == "shim"
    assert leaf["tools"][0]["estimated"] is False
    assert leaf["warnings"] == plain["warnings"] == []


def test_ids_of_another_map_are_refused_and_warned_of(servers, tool, found, map_file) -> None:
    other = f"sha256:{'ab' * 32}"
    file = servers(up={"tools": [tool()], "result": text(_meta={CODEC_META_KEY: {"map_id": other, "ids": [1, 2]}})})
    own(file, f'[tokens]\nmap = "{map_file}"\n')

    (server,) = found(file)["servers"]

    assert server["tools"][0]["ids"] == {
        "word": "refused",
        "detail": f"its ids belong to map {other}, which this gateway does not accept",
    }
    assert server["warnings"] == [
        f"the ids of 'look' are not used: its ids belong to map {other}, which this gateway does not accept"
    ]


def test_ids_that_lie_are_refused(servers, tool, found, leaf_result, map_file) -> None:
    lying = json.loads(json.dumps(leaf_result))
    lying["content"][0]["_meta"][CODEC_META_KEY]["ids"].pop()
    file = servers(up={"tools": [tool()], "result": lying})
    own(file, f'[tokens]\nmap = "{map_file}"\n')

    (server,) = found(file)["servers"]

    assert server["tools"][0]["ids"]["word"] == "refused"
    assert "do not spell the text" in server["tools"][0]["ids"]["detail"]


def test_without_a_map_a_leaf_is_a_leaf_that_was_not_compared(servers, tool, found, leaf_result) -> None:
    (server,) = found(servers(up={"tools": [tool()], "result": leaf_result}))["servers"]

    assert server["tools"][0]["ids"]["word"] == "leaf"
    assert "no map is loaded here" in server["tools"][0]["ids"]["detail"]


@pytest.mark.parametrize("result", [{"content": []}, {**text(), "isError": True}])
def test_result_that_tells_nothing_leaves_the_tool_unknown(servers, tool, found, result) -> None:
    (server,) = found(servers(up={"tools": [tool()], "result": result}))["servers"]

    assert server["tools"][0]["ids"]["word"] == "unknown"


def test_name_that_two_servers_offer_is_a_problem_that_names_both_and_a_uri_is_none(servers, tool, found) -> None:
    offer = {"tools": [tool()], "resources": [{"uri": "a:b", "name": "b"}], "result": text()}
    file = servers(one=offer, two=offer)
    own(file, 'prefix = "never"\n')

    report = found(file, code=exit_codes.FAILED)

    (problem,) = report["problems"]
    assert "'one'" in problem
    assert "'two'" in problem
    assert not any("a:b" in each for each in report["warnings"])
    assert all(server["problems"] == [] for server in report["servers"])


def test_names_that_clients_refuse_and_tools_without_words_are_warned_of(servers, tool, found) -> None:
    (server,) = found(servers(up={"tools": [tool("a.b"), tool("mute", description=None)], "result": text()}))["servers"]

    names, silent, _ = server["warnings"]
    assert "a.b (alias a_b_" in names
    assert "mute" not in names
    assert "mute" in silent


def test_malformed_items_are_warned_of_by_kind_of_flaw_with_what_became_of_them(servers, tool, found) -> None:
    odd = [tool("one", title=None), tool("two", title=None), tool("gone", inputSchema="x"), tool("fine")]
    (server,) = found(servers(up={"tools": odd, "result": text()}), "--no-call")["servers"]

    assert [each["name"] for each in server["tools"]] == ["one", "two", "fine"]
    assert server["warnings"] == [
        "'gone' is not offered: inputSchema: expected an object, got 'x'",
        "malformed in the list of tools: one, two: title: expected a string, got null; the field is dropped",
    ]


def test_definitions_that_cost_much_are_warned_of_with_a_way_out(servers, tool, found) -> None:
    long = [tool(f"t{n}", description="word " * 2000) for n in range(10)]
    (server,) = found(servers(up={"tools": long, "result": text()}), "--no-call")["servers"]

    assert any("tool_search" in warning for warning in server["warnings"])


def test_credentials_over_plain_http_are_warned_of() -> None:
    from gateway.config.gateway_config import UpstreamConfig
    from gateway.serve.admin.advice import advice_for

    def said(url: str) -> list[str]:
        return list(advice_for(UpstreamConfig(name="up", url=url, headers={"Authorization": "Bearer t"}), (), {}, {}))

    assert "unencrypted" in said("http://far.example/mcp")[0]
    assert said("https://far.example/mcp") == said("http://127.0.0.1:9/mcp") == []


def test_tool_that_is_not_as_it_was_pinned_is_warned_of(servers, tool, found, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    toml = '[upstreams.up]\ncommand = "{}"\nargs = {}\npin = "warn"\n'
    file = tmp_path / "own.toml"
    for words in ("first", "second"):
        offer = json.dumps({"tools": [tool(description=words)], "result": text()})
        script = str(Path(__file__).parent / "servers" / "offers.py")
        # The offer comes by the environment of a shell, so that the pinned program stays the same.
        (tmp_path / "offer.json").write_text(offer)
        run = ["-c", f'exec {sys.executable} {script} "$(cat {tmp_path}/offer.json)"']
        file.write_text(toml.format("/bin/sh", json.dumps(run)))
        report = found(file)

    assert PinFile().changes()
    assert report["warnings"] == [
        "server 'up': the definition of tool 'look' is not the pinned one: see codec-gateway pins show"
    ]


def test_override_without_its_tool_is_warned_of_and_a_name_that_is_taken_in_a_view_is_a_problem(
    servers, tool, found, tmp_path, monkeypatch
) -> None:
    # Other tests have a server of this name.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = servers(up={"tools": [tool(), tool("list")], "result": text()})
    (server,) = json.loads(file.read_text())["mcpServers"].values()
    toml = file.parent / "own.toml"
    command, args = json.dumps(server["command"]), json.dumps(server["args"])
    table = f'prefix = "never"\n[upstreams.up]\ncommand = {command}\nargs = {args}\n'
    toml.write_text(f"{table}[upstreams.up.overrides.gone]\n[views.v.overrides.gone]\n[views.v.overrides.list]\n")
    report = found(toml)
    toml.write_text(f'{table}[views.v.overrides.list]\nname = "look"\n')
    clash = found(toml, code=exit_codes.FAILED)

    assert [each.partition(":")[0] for each in report["warnings"]] == [
        "upstreams.up.overrides.gone",
        "views.v.overrides.gone",
    ]
    assert clash["problems"] == [
        "views.v.overrides.list.name: tool 'look' is offered by server 'up' twice: choose another"
    ]


def test_missing_map_is_a_problem_and_servers_are_still_tried(servers, tool, found, tmp_path) -> None:
    file = servers(up={"tools": [tool()], "result": text()})
    (tmp_path / "map.json").write_text("{}")
    own(file, f'[tokens]\nmap = "{tmp_path}/map.json"\n')

    report = found(file, code=exit_codes.FAILED)

    assert "map.json" in report["problems"][0]
    assert report["servers"][0]["reached"] is True


@pytest.mark.engine
def test_running_engine_proves_the_map(servers, tool, found, engine_url, map_file) -> None:
    file = servers(up={"tools": [tool()], "result": text()})
    own(file, f'[engine]\nkind = "url"\nurl = "{engine_url}"\n[tokens]\nmap = "{map_file}"\n')

    report = found(file)

    assert "slots of" in report["engine"]
    assert report["maps"] == [map_digest(map_file.read_bytes())]


def test_engine_that_is_away_is_a_problem(servers, found, map_file) -> None:
    file = servers()
    own(file, f'[engine]\nkind = "url"\nurl = "http://127.0.0.1:9"\n[tokens]\nmap = "{map_file}"\n')

    report = found(file, code=exit_codes.FAILED)

    assert report["engine"] == "down"
    assert "127.0.0.1:9" in report["problems"][0]


@pytest.mark.parametrize(("data", "words"), [(b"no model", "is not a GGUF file"), (b"GGUF", "get the file again")])
def test_model_that_the_embedded_engine_could_not_load_is_a_problem(command, tmp_path, data, words) -> None:
    (model := tmp_path / "model.gguf").write_bytes(data)

    ran = command("doctor", "--json", "--engine", "embedded", "--model", str(model))

    assert ran.code == exit_codes.FAILED
    assert words in json.loads(ran.out)["problems"][0]


def test_engine_of_a_flag_is_examined_without_any_configuration(command, tmp_path, monkeypatch, map_file) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODEC_GATEWAY_TOKENS__MAP", str(map_file))

    ran = command("doctor", "--json", "--engine", "http://127.0.0.1:9")

    assert ran.code == exit_codes.FAILED
    assert "127.0.0.1:9" in json.loads(ran.out)["problems"][0]


def test_tool_format_that_there_is_not_is_a_problem_and_names_those_there_are(servers, found, map_file) -> None:
    file = servers()
    own(file, f'[engine]\nkind = "embedded"\ntool_format = "hermis"\n[tokens]\nmap = "{map_file}"\n')

    report = found(file, code=exit_codes.FAILED)

    assert "'hermis'" in report["problems"][0]
    assert "'hermes'" in report["problems"][0]


def test_secret_of_a_server_is_in_no_finding(servers, tool, command, monkeypatch) -> None:
    monkeypatch.setenv("NOTES_TOKEN", "tok-5555-6666")
    file = servers(up={"tools": [tool()], "error": "bad token tok-5555-6666"})
    entries = json.loads(file.read_text())
    entries["mcpServers"]["up"]["env"] = {"NOTES_TOKEN": "${NOTES_TOKEN}"}
    file.write_text(json.dumps(entries))

    for words in (["--json"], ["--tools"]):
        ran = command("doctor", "-c", file, *words)
        assert "bad token ****" in ran.out
        assert "tok-5555" not in ran.out + ran.err


@pytest.mark.parametrize("width", [40, 60, 120])
def test_page_fits_the_terminal(width: int) -> None:
    server = ServerCheck("a-server-of-some-length", "stdio", True, 1.5, "2025-11-25", problems=("x" * 100,))
    console = Console(width=width, force_terminal=True, color_system=None, record=True, quiet=False)
    with console.capture() as capture:
        print_checkup(console, Checkup((server,), "none", ()), tools=True)

    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    assert any("a-server-of-some-length" in line and "yes" in line for line in lines)
    assert any("wider terminal" in line for line in lines) == (width < 100)


def test_pipe_gets_one_line_a_server(servers, tool, command) -> None:
    file = servers(**{f"server-{n}": {"tools": [tool()], "result": text()} for n in range(3)})

    lines = command("doctor", "-c", file).out.splitlines()

    assert [line.split()[:2] for line in lines if line.startswith("server-")] == [
        [f"server-{n}", "yes"] for n in range(3)
    ]
    assert lines[-1] == "all is well"


def test_definition_costs_what_it_costs_under_the_name_that_clients_see(servers, tool, found) -> None:
    alone = found(servers(a_long_name={"tools": [tool()], "result": text()}))["servers"][0]
    beside = found(servers(a_long_name={"tools": [tool()], "result": text()}, b={"tools": [], "result": text()}))

    (named,) = alone["tools"]
    (prefixed,) = beside["servers"][0]["tools"]
    assert prefixed["tokens"] - named["tokens"] == pytest.approx(len("a_long_name__") / 4, abs=1)


def test_page_says_what_unknown_ids_are_and_where_the_reason_stands(servers, tool, command) -> None:
    file = servers(up={"tools": [tool(annotations=None)], "result": text()})

    assert "--tools says why" in command("doctor", "-c", file).out
    assert "--tools says why" not in command("doctor", "-c", file, "--tools").out


@pytest.mark.parametrize("words", [(), ("-c", "empty.toml"), ("--json",)])
def test_nothing_to_examine_is_no_success_and_says_what_to_do(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.toml").write_text("")
    monkeypatch.chdir(tmp_path)

    code = run(["doctor", *words])

    printed = capsys.readouterr()
    assert code == exit_codes.CONFIG
    assert printed.out == ""
    assert "there is nothing to examine" in printed.err
    assert "--config" in printed.err
