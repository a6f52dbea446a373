"""The files that Claude Desktop, Claude Code, Cursor and VS Code write, read as they are."""

import json
from pathlib import Path

import pytest

from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.config.load import load_config
from gateway.config.show import show_config
from gateway.errors import ConfigError

FILES = Path(__file__).parent / "files"


def load(path: Path, cwd: Path, **environ: str) -> GatewayConfig:
    return load_config(path, environ=environ, cwd=cwd)


def write(folder: Path, listed: object, **rest: object) -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": listed, **rest}))
    return path


def only(config: GatewayConfig) -> UpstreamConfig:
    assert len(config.upstreams) == 1
    return config.upstreams[0]


def test_claude_desktop_file_gives_its_servers_in_order(tmp_path: Path) -> None:
    config = load(FILES / "claude_desktop_config.json", tmp_path)

    assert [upstream.name for upstream in config.upstreams] == ["filesystem", "github"]
    assert config.upstreams[0].command == "npx"
    assert config.upstreams[0].args == ("-y", "@modelcontextprotocol/server-filesystem", "/srv/papers")
    assert config.upstreams[1].env == {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_0123456789abcdef"}
    assert config.upstreams[1].secrets == {"ghp_0123456789abcdef"}


@pytest.mark.parametrize(
    ("command", "before"),
    [
        ("codec-gateway", []),
        ("/opt/codec/bin/codec-gateway", []),
        ("python3", ["-m", "gateway"]),
        ("uvx", ["codec-gateway"]),
    ],
)
@pytest.mark.parametrize("spelled", ["{}", "--config={}", "./mcp.json"])
def test_entry_that_starts_the_gateway_with_this_file_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, before: list[str], spelled: str
) -> None:
    monkeypatch.chdir(tmp_path)
    place = spelled.format(tmp_path / "mcp.json")
    named = [place] if spelled.startswith("--") else ["-c", place]
    itself = {"command": command, "args": [*before, "stdio", *named]}
    config = load(write(tmp_path, {"codec": itself, "time": {"command": "time-server"}}), tmp_path)

    assert only(config).name == "time"
    assert [each for each in config.warnings if "'codec'" in each and "itself" in each]


@pytest.mark.parametrize(
    "words", [["uvx", "codec-gateway@latest"], ["uvx", "codec-gateway[demo]"], ["py", "-mgateway"]]
)
@pytest.mark.parametrize("flags", [["-c", "gateway.toml"], ["-cgateway.toml"]])
def test_entry_that_starts_the_gateway_with_the_file_that_names_this_one_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], flags: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    itself = {"command": words[0], "args": [*words[1:], "stdio", *flags]}
    write(tmp_path, {"codec": itself, "time": {"command": "time-server"}})
    (tmp_path / "gateway.toml").write_text('mcp_config = "mcp.json"\n')

    assert only(load(tmp_path / "gateway.toml", tmp_path)).name == "time"


@pytest.mark.parametrize("path", ["~nobody_of_that_name/g.toml", "loop", "other.json", ""])
def test_entry_whose_file_is_another_or_none_is_a_server_like_any_other(tmp_path: Path, path: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    named = str(tmp_path / path) if path == "loop" else path
    itself = {"command": "codec-gateway", "args": ["stdio", "--config", named]}

    assert only(load(write(tmp_path, {"codec": itself}), tmp_path)).name == "codec"


def test_gateway_with_another_file_is_a_server_like_any_other(tmp_path: Path) -> None:
    other = {"command": "codec-gateway", "args": ["stdio", "--config", str(tmp_path / "other.json")]}

    assert only(load(write(tmp_path, {"codec": other}), tmp_path)).name == "codec"


def test_unknown_keys_are_one_warning_that_lists_them(tmp_path: Path) -> None:
    config = load(FILES / "claude_desktop_config.json", tmp_path)

    assert len(config.warnings) == 1
    assert "'globalShortcut', 'preferences'" in config.warnings[0]


@pytest.mark.parametrize(
    ("entry", "seconds"),
    [
        # Cline and Roo Code: seconds. Claude Code and Gemini CLI: milliseconds. Codex says it in the key.
        ({"timeout": 60}, 60.0),
        ({"timeout": 3600}, 3600.0),
        ({"timeout": 3601}, 3.601),
        ({"timeout": 600_000}, 600.0),
        ({"timeout": "30000"}, 30.0),
        ({"timeout": 0.5}, 0.5),
        ({"tool_timeout_sec": 7200}, 7200.0),
        ({"timeout": None}, None),
        ({}, None),
    ],
)
def test_time_limit_of_calls_is_read_in_the_units_that_programs_write(
    tmp_path: Path, entry: dict[str, object], seconds: float | None
) -> None:
    config = load(write(tmp_path, {"a": {"command": "x", **entry}, "b": {"url": "http://h/mcp", **entry}}), tmp_path)

    assert [upstream.timeout for upstream in config.upstreams] == [seconds, seconds]
    assert config.warnings == ()


@pytest.mark.parametrize("value", [0, -1, True, "soon", [], 10**400, float("inf")])
def test_time_limit_that_is_none_is_passed_over_with_a_warning(tmp_path: Path, value: object) -> None:
    config = load(write(tmp_path, {"a": {"command": "x", "timeout": value}}), tmp_path)

    assert only(config).timeout is None
    (warning,) = config.warnings
    assert warning.endswith(
        "server 'a': key 'timeout': expected a number above 0; the time limit of calls stays as it was"
    )


def test_cursor_file_expands_variables_and_keeps_their_values_as_secrets(tmp_path: Path) -> None:
    config = load(FILES / ".cursor" / "mcp.json", tmp_path, NOTES_TOKEN="n-1234", LINEAR_KEY="lin-5678")

    notes, linear, _ = config.upstreams
    assert notes.args == ("notes-mcp", "--root", str(FILES), "--home", str(Path.home()))
    assert notes.env == {"NOTES_TOKEN": "n-1234", "NOTES_PORT": "4310"}
    assert notes.secrets == {"n-1234"}
    assert linear.url == "https://mcp.linear.example/mcp"
    assert linear.headers == {"Authorization": "Bearer lin-5678"}
    assert linear.secrets == {"lin-5678", "Bearer lin-5678"}


def test_server_of_the_old_transport_is_reached_by_its_url(tmp_path: Path) -> None:
    config = load(FILES / ".cursor" / "mcp.json", tmp_path, NOTES_TOKEN="n-1234", LINEAR_KEY="lin-5678")

    assert {upstream.name: upstream.url for upstream in config.upstreams}["retired"] == "https://old.example/sse"


def test_vscode_file_is_read_with_its_env_file_and_an_answered_input(tmp_path: Path) -> None:
    config = load(FILES / ".vscode" / "mcp.json", tmp_path, CODEC_GATEWAY_INPUT_PERPLEXITY_KEY="pplx-42")

    perplexity, fetch, github = config.upstreams
    assert perplexity.env == {"PERPLEXITY_API_KEY": "pplx-42"}
    assert "pplx-42" in perplexity.secrets
    assert fetch.env == {"FETCH_AGENT": "codec test", "FETCH_KEY": "k-778899"}
    assert fetch.secrets == {"codec test", "k-778899"}
    assert github.transport == "http"
    assert not any("CODEC_GATEWAY_INPUT" in warning for warning in config.warnings)


def test_server_with_an_unanswered_input_is_left_out_with_the_variable_to_set(tmp_path: Path) -> None:
    config = load(FILES / ".vscode" / "mcp.json", tmp_path)

    assert "perplexity" not in {upstream.name for upstream in config.upstreams}
    warning = next(each for each in config.warnings if "'${input:perplexity-key}'" in each)
    assert "CODEC_GATEWAY_INPUT_PERPLEXITY_KEY" in warning
    assert "'perplexity'" in warning
    assert "'env.PERPLEXITY_API_KEY'" in warning


@pytest.mark.parametrize(
    ("environ", "url"),
    [({}, "https://api.example.com/mcp"), ({"API_BASE_URL": "http://localhost:9"}, "http://localhost:9/mcp")],
)
def test_default_of_a_variable_is_taken_when_it_is_unset(tmp_path: Path, environ: dict[str, str], url: str) -> None:
    assert only(load(FILES / "claude_code.mcp.json", tmp_path, API_KEY="k-1", **environ)).url == url


def test_unset_variable_names_variable_server_and_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(FILES / "claude_code.mcp.json", tmp_path)

    message = caught.value.message
    assert "'API_KEY'" in message
    assert "server 'api'" in message
    assert "'headers.X-Api-Key'" in message


def test_disabled_server_is_not_read_at_all(tmp_path: Path) -> None:
    path = write(
        tmp_path, {"a": {"command": "${NEVER}", "disabled": True}, "b": {"enabled": False}, "c": {"command": "c"}}
    )

    assert only(load(path, tmp_path)).name == "c"


@pytest.mark.parametrize("kind", ["http", "streamable-http", "streamableHttp", "streamable_http"])
def test_every_spelling_of_streamable_http_is_known(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, {"a": {"type": kind, "url": "https://a.example/mcp"}})

    assert only(load(path, tmp_path)).transport == "http"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "neither 'command' nor 'url'"),
        ({"command": "x", "url": "http://y"}, "both 'command' and 'url'"),
        ({"type": "stdio", "url": "http://y"}, "no 'command'"),
        ({"type": "http", "command": "x"}, "no 'url'"),
        ({"type": "websocket", "url": "ws://y"}, "expected 'stdio' or 'http', got 'websocket'"),
        ({"url": "ftp://y"}, "expected http://HOST"),
        ({"url": "http://"}, "expected http://HOST"),
        ({"url": "http://y:99999"}, "expected http://HOST"),
        ({"command": ["x"]}, "expected a text, got list"),
        ({"command": "x", "args": "y"}, "expected a list, got str"),
        ({"command": "x", "env": ["A=b"]}, "expected an object, got list"),
        ({"command": "x", "env": {"A": {}}}, "'env.A': expected a text, got dict"),
        ({"command": "x", "args": ["a\0b"]}, "NUL"),
        ({"command": "x", "cwd": "nowhere"}, "is not a folder"),
        ({"command": "x", "args": ["${config:python.path}"]}, "is not a form"),
        ({"command": "x", "envFile": "gone.env"}, "gone.env: no such file"),
        ("uvx thing", "expected an object, got str"),
    ],
)
def test_wrong_entry_is_left_out_by_name_and_an_error_where_there_is_no_other(
    tmp_path: Path, entry: object, words: str
) -> None:
    beside = load(write(tmp_path, {"first": {"command": "x"}, "the-one": entry, "last": {"command": "y"}}), tmp_path)
    assert [upstream.name for upstream in beside.upstreams] == ["first", "last"]
    assert any(words in warning and "the server is left out" in warning for warning in beside.warnings)

    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, {"the-one": entry}), tmp_path)

    assert words in caught.value.message
    assert str(tmp_path) in caught.value.message
    if "gone.env" not in words:
        assert "'the-one'" in caught.value.message


def test_name_that_no_tool_can_carry_is_respelled_with_a_warning(tmp_path: Path) -> None:
    config = load(write(tmp_path, {"Git Hub.com": {"command": "x"}, "a__b": {"command": "y"}}), tmp_path)

    assert [upstream.name for upstream in config.upstreams] == ["Git_Hub_com", "a_b"]
    assert any("'Git Hub.com' is called 'Git_Hub_com'" in warning for warning in config.warnings)
    assert any("'a__b' is called 'a_b'" in warning for warning in config.warnings)


def test_second_server_of_a_name_is_left_out(tmp_path: Path) -> None:
    alike = load(write(tmp_path, {"a b": {"command": "x"}, "a_b": {"command": "y"}}), tmp_path)
    assert only(alike).command == "x"
    assert any("a second server is called 'a_b'" in warning for warning in alike.warnings)

    both = load(
        write(tmp_path, {"a": {"command": "x"}}, servers={"a": {"command": "y"}, "b": {"command": "z"}}), tmp_path
    )
    assert [upstream.command for upstream in both.upstreams] == ["x", "z"]
    assert any("a second server is called 'a'" in warning for warning in both.warnings)


def test_list_inside_the_settings_of_vscode_is_found(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"editor.fontSize": 12, "mcp": {"servers": {"a": {"command": "x"}}}}')

    assert only(load(path, tmp_path)).name == "a"


@pytest.mark.parametrize(
    "args", [["--api-key", "sk-111222"], ["--token=sk-111222"], ["serve", "--db-password", "sk-111222"]]
)
def test_secret_argument_is_known_as_one(tmp_path: Path, args: list[str]) -> None:
    assert only(load(write(tmp_path, {"a": {"command": "x", "args": args}}), tmp_path)).secrets == {"sk-111222"}


@pytest.mark.parametrize(
    "args",
    [
        ["run", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN=sk-111222", "image"],
        ["-eAPI_KEY=sk-111222"],
        ["--env=API_KEY=sk-111222"],
        ["--header", "X-Api-Key: sk-111222"],
        ["--header", "X-Api-Key:sk-111222"],
        ["--header=Authorization: Bearer sk-111222"],
        ["-H", "Authorization: token sk-111222"],
        ["API_KEY=sk-111222", "npx", "server"],
        ["-c", "LEVEL=1 API_KEY='sk-111222' exec server --fast"],
        ["--config", '{"apiKey": "sk-111222", "level": 1}'],
        ["https://far.example/mcp?level=1&token=sk-111222"],
    ],
)
def test_secret_within_an_argument_is_known_and_shown_nowhere(tmp_path: Path, args: list[str]) -> None:
    config = load(write(tmp_path, {"a": {"command": "x", "args": args}}), tmp_path)

    assert "sk-111222" in only(config).secrets
    assert "sk-111222" not in json.dumps(show_config(config))


def test_blanks_within_a_secret_argument_hide_no_part_of_it(tmp_path: Path) -> None:
    config = load(write(tmp_path, {"a": {"command": "x", "args": ["DB_PASSWORD=two words"]}}), tmp_path)

    assert show_config(config)["upstreams"]["a"]["args"] == ["DB_PASSWORD=****"]


@pytest.mark.parametrize(
    "arg", ["LEVEL=debug", "--author=me", "Accept: text/plain", "https://far.example:8080/mcp", "key=value", "-v"]
)
def test_argument_that_names_no_secret_is_shown_as_it_is(tmp_path: Path, arg: str) -> None:
    config = load(write(tmp_path, {"a": {"command": "x", "args": [arg]}}), tmp_path)

    assert show_config(config)["upstreams"]["a"]["args"] == [arg]


def test_secrets_inside_a_url_are_known(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": {"url": "https://me:pass99@a.example/mcp?api_key=key88&page=2"}})

    assert only(load(path, tmp_path)).secrets == {"pass99", "key88"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("[]", "holds list"),
        ('{"mcpServers": {\n  "a" 1}}', "line 2, column 7"),
        ("{}", "neither 'mcpServers' nor 'servers'"),
        ('{"mcpserver": {}}', "it has 'mcpserver', did you mean 'mcpServers'?"),
        ('{"tools": {}}', "it has 'tools')"),
        ('{"mcpServers": []}', "expected an object, got list"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "'a' appears twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "too long"),
    ],
)
def test_file_that_holds_no_list_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load(path, tmp_path)

    assert words in caught.value.message
    assert str(path) in caught.value.message


def test_file_that_is_none_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file: give the path"):
        load(tmp_path / "gone.json", tmp_path)
    with pytest.raises(ConfigError, match="a folder: give the configuration file inside"):
        load(tmp_path, tmp_path)


def test_file_that_is_not_text_or_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(b'{"mcpServers": "\xff"}')
    with pytest.raises(ConfigError, match="not UTF-8 at byte 16"):
        load(path, tmp_path)

    path.write_bytes(b" " * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="larger than"):
        load(path, tmp_path)


def test_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(b'\xef\xbb\xbf{"mcpServers": {"a": {"command": "x"}}}')

    assert only(load(path, tmp_path)).name == "a"


def test_env_file_line_without_a_name_is_refused_without_showing_it(tmp_path: Path) -> None:
    (tmp_path / "bad.env").write_text("A=1\nsk-999888777\n")

    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, {"a": {"command": "x", "envFile": "bad.env"}}), tmp_path)

    assert "line 2" in caught.value.message
    assert "sk-999" not in caught.value.message


def test_entry_wins_over_its_env_file(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("A=file\nB=file\n")
    path = write(tmp_path, {"a": {"command": "x", "envFile": "a.env", "env": {"A": "entry"}}})

    assert only(load(path, tmp_path)).env == {"A": "entry", "B": "file"}


def test_secrets_of_an_entry_and_of_its_env_file_are_both_known(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("A=from-file\n")
    path = write(tmp_path, {"a": {"command": "x", "envFile": "${workspaceFolder}/a.env", "args": ["${B}"]}})

    assert only(load(path, tmp_path, B="from-variable")).secrets == {"from-file", "from-variable"}


def test_option_after_a_secret_option_is_no_secret(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": {"command": "x", "args": ["--token", "--verbose", "file"]}})

    assert only(load(path, tmp_path)).secrets == frozenset()


def test_folder_of_a_server_may_start_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()

    assert only(load(write(tmp_path, {"a": {"command": "x", "cwd": "~/work"}}), tmp_path)).cwd == tmp_path / "work"
