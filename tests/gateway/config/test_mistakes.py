"""Mistakes in settings: each is named by its file and key as its author wrote it, with what to do."""

from pathlib import Path

import pytest

from gateway.config.load import load_config
from gateway.errors import ConfigError
from tests.gateway.config.own_files import own, refuse


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[serve]\nprot = 1\n", "unknown key 'serve.prot': did you mean 'port'?"),
        ("[limit]\n", "unknown key 'limit': did you mean 'limits'?"),
        ("[upstreams.a]\ncomand = 'x'\n", "unknown key 'upstreams.a.comand': did you mean 'command'?"),
        (
            "zzz = 1\n",
            "unknown key 'zzz': expected one of mcp_config, separator, prefix, tool_search, safe_names, engine",
        ),
        ("[serve]\nport = '8600'\n", "key 'serve.port': expected a whole number, got '8600'"),
        ("[serve]\nport = true\n", "key 'serve.port': expected a whole number, got true"),
        ("[serve]\nport = 70000\n", "key 'serve.port': expected at most 65535, got 70000"),
        ("[limits]\ntool_timeout = 0\n", "key 'limits.tool_timeout': expected more than 0"),
        ("[limits]\ntool_timeout = inf\n", "key 'limits.tool_timeout': expected a finite number"),
        ("[tokens]\nverify = 'off'\n", "key 'tokens.verify': expected 'verify' or 'trust', got 'off'"),
        ("[tokens]\nmaps = ['a', 1]\n", "key 'tokens.maps.1': expected a text, got 1"),
        ("serve = 1\n", "key 'serve': expected a table of settings, got 1"),
        ("separator = 'a b'\n", "key 'separator': expected a text that matches ^[A-Za-z0-9_-]{1,8}$"),
        ("port = \n", "not TOML: Invalid value (at line 1"),
        ("a = " + "9" * 5000, "too long"),
    ],
)
def test_wrong_own_file_is_refused_with_file_key_and_cure(tmp_path: Path, toml: str, words: str) -> None:
    message = refuse(tmp_path, toml)

    assert words in message
    assert str(tmp_path / "codec-gateway.toml") in message


def test_every_mistake_of_a_file_is_named_at_once(tmp_path: Path) -> None:
    message = refuse(tmp_path, "[serve]\nprot = 1\nport = 'x'\n")

    assert "'serve.prot'" in message
    assert "'serve.port'" in message


def test_five_mistakes_are_enough_for_one_message(tmp_path: Path) -> None:
    message = refuse(tmp_path, "[serve]\n" + "".join(f"wrong{number} = 1\n" for number in range(7)))

    assert [f"'serve.wrong{number}'" in message for number in range(7)] == [True] * 5 + [False] * 2


def test_wrong_secret_is_refused_without_being_shown(tmp_path: Path) -> None:
    message = refuse(tmp_path, "[serve]\ntoken = 'short7!'\n")

    assert "expected at least 8 characters" in message
    assert "short7!" not in message


def test_wrong_variable_and_flag_are_named(tmp_path: Path) -> None:
    message = refuse(tmp_path, environ={"CODEC_GATEWAY_SERVE__PORT": "http"})
    assert message == "CODEC_GATEWAY_SERVE__PORT: expected a whole number, got 'http'"

    message = refuse(tmp_path, environ={"CODEC_GATEWAY_SERVE__PROT": "1"})
    assert "did you mean 'port'?" in message

    assert refuse(tmp_path, serve__prot=1).startswith("--prot: unknown key")
    assert "set only in a file" in refuse(tmp_path, environ={"CODEC_GATEWAY_UPSTREAMS__A__COMMAND": "x"})


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[serve]\nworkers = 0\n", "key 'serve.workers': expected 'auto' or at least 1, got 0"),
        ("[serve]\nworkers = 'many'\n", "key 'serve.workers': expected 'auto' or a whole number, got 'many'"),
        ("tool_search = 'yes'\n", "key 'tool_search': expected true or false or 'auto', got 'yes'"),
        (
            "engine = 5\n",
            "key 'engine': expected 'embedded', 'none', the URL of a server or a table of settings, got 5",
        ),
        ("[engine]\ncache_mib = -1\n", "key 'engine.cache_mib': expected at least 0, got -1"),
        ("[tokens]\nmaps = {}\n", "key 'tokens.maps': expected a list, got a table"),
    ],
)
def test_one_mistake_is_one_sentence_however_many_forms_the_value_may_have(
    toml: str, words: str, tmp_path: Path
) -> None:
    assert refuse(tmp_path, toml).partition(": ")[2] == words


@pytest.mark.parametrize(
    ("toml", "environ", "flags", "start"),
    [
        ("[serve]\n\nport = 'x'\n", {}, {}, "{file}:3: key 'serve.port': expected a whole number"),
        ("# x\n[serve]\nprot = 1\n", {}, {}, "{file}:3: unknown key 'serve.prot'"),
        ("\n[server]\nport = 1\n", {}, {}, "{file}:2: unknown key 'server'"),
        ("[tokens]\nmap = 'no.json'\n", {}, {}, "{file}:2: tokens.map: expected"),
        ("[tokens]\nmap = 'no.json'\n", {}, {"tokens.map": "other.json"}, "--map: expected"),
        ("", {"CODEC_GATEWAY_TOKENS__MAP": "no.json"}, {}, "CODEC_GATEWAY_TOKENS__MAP: expected"),
        ("", {"CODEC_GATEWAY_ENGINE": "embeded"}, {}, "CODEC_GATEWAY_ENGINE: expected 'embedded', 'none' or http"),
        ("", {}, {"engine": "localhost:8080"}, "--engine: expected 'embedded', 'none' or http"),
        ("", {}, {"serve.workers": "0"}, "--workers: expected 'auto' or at least 1, got '0'"),
        ("", {}, {"serve.admin_port": 8600}, "serve.port and --admin-port are both 8600"),
        ("[serve]\nport = 9\n", {"CODEC_GATEWAY_SERVE__ADMIN_PORT": "9"}, {}, "serve.port and CODEC_GATEWAY_SERVE__A"),
        ("[serve]\nport = 9\nadmin_port = 9\n", {}, {}, "{file}:2: serve.port and serve.admin_port are both 9"),
        ("engine = 'embeded'\n", {}, {}, "{file}:1: engine: expected"),
    ],
)
def test_setting_is_named_as_its_author_wrote_it(
    toml: str, environ: dict[str, str], flags: dict[str, object], start: str, tmp_path: Path
) -> None:
    file = tmp_path / "codec-gateway.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError) as caught:
        load_config(None, flags, environ=environ, cwd=tmp_path)

    assert caught.value.message.startswith(start.format(file=file))


def test_server_that_can_not_be_read_leaves_the_others_if_its_reason_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(
        '{"mcpServers": {"a": {"command": "x"}, "b": {"url": "ftp://x"}, "c": {"command": "x", "cwd": "/no/folder"}}}'
    )
    broken: dict[str, str] = {}

    config = load_config(tmp_path / "mcp.json", environ={}, cwd=tmp_path, broken=broken)

    assert [each.name for each in config.upstreams] == ["a"]
    assert {name: next(key for key in ("'url'", "'cwd'") if key in why) for name, why in broken.items()} == {
        "b": "'url'",
        "c": "'cwd'",
    }


def test_variable_that_means_nothing_is_a_warning(tmp_path: Path) -> None:
    config = load_config(None, environ={"CODEC_GATEWAY_ENGIN": "x", "CODEC_GATEWAY_PORT": "9000"}, cwd=tmp_path)

    assert any("'CODEC_GATEWAY_ENGIN' is not a setting: did you mean 'engine'?" in w for w in config.warnings)
    assert any("'CODEC_GATEWAY_PORT' is not a setting" in w for w in config.warnings)


def test_variables_that_kubernetes_sets_for_a_service_are_passed_over(tmp_path: Path) -> None:
    own(tmp_path, "engine = 'embedded'\n")
    environ = {
        "CODEC_GATEWAY_SERVICE_HOST": "10.0.0.7",
        "CODEC_GATEWAY_SERVICE_PORT": "8600",
        "CODEC_GATEWAY_SERVICE_PORT_HTTP": "8600",
        "CODEC_GATEWAY_PORT": "tcp://10.0.0.7:8600",
        "CODEC_GATEWAY_PORT_8600_TCP": "tcp://10.0.0.7:8600",
        "CODEC_GATEWAY_PORT_8600_TCP_ADDR": "10.0.0.7",
    }

    assert load_config(None, environ=environ, cwd=tmp_path).warnings == ()
