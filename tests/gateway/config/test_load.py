"""Our own settings: what wins over what, and what is refused."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from gateway.config.access import (
    AuditConfig,
    AuditSection,
    ConnectionsConfig,
    OAuthConfig,
    OAuthSection,
    TelemetryConfig,
    TelemetrySection,
)
from gateway.config.load import load_config
from gateway.config.masking import MASK
from gateway.config.model import (
    AgentConfig,
    ClientCredentials,
    EngineConfig,
    GatewayConfig,
    LimitsConfig,
    ServeConfig,
    SignInConfig,
    TokensConfig,
    UpstreamConfig,
)
from gateway.config.overrides import ToolOverride
from gateway.config.section import Section
from gateway.config.settings import AgentSection, EngineSection, LimitsSection, ServeSection, TokensSection
from gateway.config.show import show_config
from gateway.config.tables import UpstreamSection
from gateway.errors import ConfigError

UNWRITTEN = {"name", "secrets", "manifest_hosts", "manifest_state"}


def own(folder: Path, text: str) -> Path:
    path = folder / "codec-gateway.toml"
    path.write_text(text)
    return path


def refuse(folder: Path, toml: str = "", /, *, environ: dict[str, str] | None = None, **flags: object) -> str:
    own(folder, toml)
    with pytest.raises(ConfigError) as caught:
        load_config(None, {k.replace("__", "."): v for k, v in flags.items()}, environ=environ or {}, cwd=folder)
    return caught.value.message


def test_nothing_given_is_the_defaults(tmp_path: Path) -> None:
    config = load_config(None, environ={}, cwd=tmp_path)

    assert config.engine == EngineConfig()
    assert config.tokens == TokensConfig()
    assert config.limits == LimitsConfig()
    assert config.serve == ServeConfig(keys=tmp_path / "keys.toml")
    assert config.upstreams == ()
    assert config.warnings == ("no MCP server and no engine is configured: there is nothing to serve",)


@pytest.mark.parametrize(
    ("section", "model"),
    [
        (EngineSection, EngineConfig),
        (AgentSection, AgentConfig),
        (TokensSection, TokensConfig),
        (LimitsSection, LimitsConfig),
        (ServeSection, ServeConfig),
        (OAuthSection, OAuthConfig),
        (AuditSection, AuditConfig),
        (TelemetrySection, TelemetryConfig),
    ],
)
def test_every_setting_of_the_model_can_be_written(section: type[Section], model: type) -> None:
    assert list(section.model_fields) == list(model.__dataclass_fields__)
    assert all(info.description for info in section.model_fields.values())


def test_every_key_of_an_upstream_can_be_written(tmp_path: Path) -> None:
    path = own(
        tmp_path,
        """
        [upstreams.time]
        command = "time"
        args = ["-v"]
        env = { TZ = "UTC" }
        cwd = "."
        start = "lazy"
        protocol = "handshake"
        sessions = "shared"
        timeout = 1.5
        concurrency = 2
        queue = 3
        idle_stop = 60.0
        breaker_failures = 4
        breaker_pause = 2.0
        include = ["get_*"]
        exclude = ["get_secret"]
        overrides = { get_time = { name = "now", annotations = { readOnlyHint = true }, defaults = { zone = "${Z}" } } }
        pin = "block"
        [upstreams.far]
        url = "https://far.example/mcp"
        headers = { X-Key = "abc" }
        [upstreams.far.oauth]
        client_id = "me"
        client_secret = "hush"
        token_url = "https://far.example/token"
        issuer = "https://far.example"
        scope = "tools"
        [upstreams.mine]
        url = "https://mine.example/mcp"
        [upstreams.mine.auth]
        issuer = "https://as.example"
        client_id = "me"
        client_secret = "hidden"
        client_metadata_url = "https://me.example/client.json"
        redirect_url = "http://127.0.0.1:7000/callback"
        scope = "read"
        resource = ""
        [upstreams.bolts]
        manifest = "tools"
        endpoint = "unix:/run/tools.sock"
        require_match = true
        headers = { Authorization = "Bearer abc" }
        [upstreams.off]
        command = "off"
        disabled = true
        """,
    )
    (tmp_path / "tools").mkdir()

    config = load_config(path, environ={"Z": "UTC"}, cwd=Path("/"))

    time, far, mine, bolts = config.upstreams
    assert (bolts.transport, bolts.manifest) == ("bolt-on", str(tmp_path / "tools"))
    assert (bolts.endpoint, bolts.require_match) == ("unix:/run/tools.sock", True)
    assert dict(bolts.headers) == {"Authorization": "Bearer abc"}
    assert (time.command, time.args, dict(time.env), time.cwd) == ("time", ("-v",), {"TZ": "UTC"}, tmp_path)
    assert (time.start, time.protocol, time.sessions, time.timeout) == ("lazy", "handshake", "shared", 1.5)
    assert (time.concurrency, time.queue, time.idle_stop) == (2, 3, 60.0)
    assert (time.breaker_failures, time.breaker_pause) == (4, 2.0)
    assert (time.include, time.exclude) == (("get_*",), ("get_secret",))
    assert time.overrides == {
        "get_time": ToolOverride("now", annotations={"readOnlyHint": True}, defaults={"zone": "UTC"})
    }
    assert time.pin == "block"
    assert (far.url, dict(far.headers), far.secrets) == ("https://far.example/mcp", {"X-Key": "abc"}, {"abc", "hush"})
    assert far.oauth == ClientCredentials(
        "me", "hush", token_url="https://far.example/token", issuer="https://far.example", scope="tools"
    )
    assert mine.auth == SignInConfig(
        "https://as.example",
        "me",
        "hidden",
        "https://me.example/client.json",
        "http://127.0.0.1:7000/callback",
        "read",
        "",
    )
    assert mine.secrets == {"hidden"}
    assert show_config(config)["upstreams"]["mine"]["auth"]["client_secret"] == MASK
    assert {*UpstreamSection.model_fields} == {field.name for field in fields(UpstreamConfig)} - UNWRITTEN | {
        "disabled"
    }


@pytest.mark.parametrize("key", ["token_url", "issuer"])
def test_authorization_server_that_is_no_url_is_refused_by_its_key(tmp_path: Path, key: str) -> None:
    path = own(
        tmp_path,
        f"""
        [upstreams.far]
        url = "https://far.example/mcp"
        oauth = {{ client_id = "me", client_secret = "hush", {key} = "far.example" }}
        """,
    )

    with pytest.raises(ConfigError, match=rf"oauth\.{key}.*expected http://HOST"):
        load_config(path, environ={}, cwd=Path("/"))


def test_sign_in_of_each_user_has_a_page_and_no_credentials_beside_it(tmp_path: Path) -> None:
    settings = '[upstreams.far]\nurl = "https://far.example/mcp"\n{}[upstreams.far.auth]\nper_user = true\n{}\n'
    redirect = 'redirect_url = "https://gw.example/tools/sign-in/callback"'
    (far,) = load_config(own(tmp_path, settings.format("", redirect)), environ={}, cwd=Path("/")).upstreams
    assert far.is_per_user
    assert far.auth is not None
    assert far.auth.user_page("a&b") == "https://gw.example/tools/sign-in?server=a%26b"

    path = own(tmp_path, settings.format('headers = { Authorization = "Bearer x" }\n', redirect))
    with pytest.raises(ConfigError, match="which every caller would use"):
        load_config(path, environ={}, cwd=Path("/"))


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        ('issuer = "as.example"', r"auth\.issuer.*expected http://HOST"),
        ('redirect_url = "http://gateway.example/callback"', r"auth\.redirect_url.*expected https"),
        ('client_metadata_url = "https://me.example/"', r"auth\.client_metadata_url.*https://HOST/PATH"),
        ('client_metadata_url = "http://me.example/c"', r"auth\.client_metadata_url.*https://HOST/PATH"),
        ('client_id = "me"', r"'auth\.client_id' without 'auth\.issuer'"),
        ('client_secret = "x"', r"'auth\.client_secret' without 'auth\.client_id'"),
        ("per_user = true", r"'auth\.per_user', which needs 'auth\.redirect_url'.*/sign-in/callback"),
        ('per_user = true, redirect_url = "https://gw.example/callback"', r"needs 'auth\.redirect_url'"),
        ('per_user = true, redirect_url = "https://gw.example/sign-in/callback?x"', r"needs 'auth\.redirect_url'"),
        ('per_user = true, redirect_url = "http://gw.example/sign-in/callback"', r"auth\.redirect_url.*expected https"),
    ],
)
def test_sign_in_that_could_go_wrong_is_refused_by_its_key(tmp_path: Path, auth: str, words: str) -> None:
    path = own(tmp_path, f'[upstreams.far]\nurl = "https://far.example/mcp"\nauth = {{ {auth} }}\n')

    with pytest.raises(ConfigError, match=words):
        load_config(path, environ={}, cwd=Path("/"))


def test_sign_in_needs_a_url_and_no_other_credentials(tmp_path: Path) -> None:
    for server, words in (
        ('command = "x"\nauth = { scope = "a" }', "has 'auth', which needs 'url'"),
        (
            'url = "https://a/mcp"\nauth = { scope = "a" }\noauth = { client_id = "a", client_secret = "b" }',
            "has both 'oauth'",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            load_config(own(tmp_path, f"[upstreams.far]\n{server}\n"), environ={}, cwd=Path("/"))


def test_flag_wins_over_variable_over_file_over_default(tmp_path: Path) -> None:
    path = own(tmp_path, "[serve]\nport = 1001\nadmin_port = 1002\nhost = '127.0.0.3'\n[limits]\nturns = 3\n")
    environ = {"CODEC_GATEWAY_SERVE__PORT": "2001", "CODEC_GATEWAY_SERVE__ADMIN_PORT": "2002"}

    config = load_config(path, {"serve.port": 3001, "limits.turns": None}, environ=environ, cwd=tmp_path)

    assert config.serve == ServeConfig(host="127.0.0.3", port=3001, admin_port=2002, keys=tmp_path / "keys.toml")
    assert config.limits == LimitsConfig(turns=3)


def test_short_token_variable_sets_the_token_and_an_empty_one_nothing(tmp_path: Path) -> None:
    assert load_config(None, environ={"CODEC_GATEWAY_TOKEN": "long enough"}, cwd=tmp_path).serve.token == "long enough"
    assert load_config(None, environ={"CODEC_GATEWAY_TOKEN": ""}, cwd=tmp_path).serve.token is None


def test_list_in_a_variable_is_written_with_commas(tmp_path: Path) -> None:
    config = load_config(None, environ={"CODEC_GATEWAY_SERVE__ALLOWED_HOSTS": "a.lan, b.lan:80,"}, cwd=tmp_path)

    assert config.serve.allowed_hosts == ("a.lan", "b.lan:80")


def test_own_file_beside_the_named_json_is_read(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "mcp.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
    own(inner, "separator = '-'\n")
    own(tmp_path, "separator = '---'\n")

    assert load_config(Path("inner/mcp.json"), environ={}, cwd=tmp_path).separator == "-"
    (inner / "codec-gateway.toml").unlink()
    assert load_config(Path("inner/mcp.json"), environ={}, cwd=tmp_path).separator == "---"


def test_bounds_of_connections_and_trusted_proxies_are_read(tmp_path: Path) -> None:
    written = "[serve]\ntrusted_proxies = ['10.1.2.3/8', '::1']\n[serve.connections]\ntotal = 9\nhead_timeout = 0.5\n"
    path = own(tmp_path, written)
    environ = {"CODEC_GATEWAY_SERVE__CONNECTIONS__PER_ADDRESS": "7"}

    serve = load_config(path, environ=environ, cwd=tmp_path).serve

    assert serve.connections == ConnectionsConfig(total=9, per_address=7, head_timeout=0.5)
    assert serve.trusted_proxies == ("10.0.0.0/8", "::1/128")
    environ = {"CODEC_GATEWAY_SERVE__TRUSTED_PROXIES": "1.2.3.4, 10.0.0.0/8"}
    assert load_config(None, environ=environ, cwd=tmp_path).serve.trusted_proxies == ("1.2.3.4/32", "10.0.0.0/8")


def test_trusted_proxy_that_is_no_address_is_refused(tmp_path: Path) -> None:
    message = refuse(tmp_path, "[serve]\ntrusted_proxies = ['proxy.lan']\n")

    words = "serve.trusted_proxies: expected an address or a network such as 10.0.0.0/8, got 'proxy.lan'"
    assert message == f"{tmp_path}/codec-gateway.toml:2: {words}"


def test_own_file_names_the_list_of_servers_from_its_own_folder(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "mcp.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
    path = own(inner, "mcp_config = 'mcp.json'\n[upstreams.b]\ncommand = 'y'\n")

    config = load_config(path, environ={}, cwd=tmp_path)

    assert [upstream.name for upstream in config.upstreams] == ["b", "a"]


def test_server_in_both_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')

    assert "two servers are called 'a'" in refuse(tmp_path, "mcp_config = 'mcp.json'\n[upstreams.a]\ncommand = 'y'\n")


def test_named_json_takes_the_place_of_the_one_in_the_own_file(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
    own(tmp_path, "mcp_config = 'other.json'\n")

    config = load_config(tmp_path / "mcp.json", environ={}, cwd=tmp_path)

    assert [upstream.name for upstream in config.upstreams] == ["a"]


@pytest.mark.parametrize(
    ("word", "kind", "url"),
    [
        ("none", "none", None),
        ("embedded", "embedded", None),
        ("http://127.0.0.1:8080/", "url", "http://127.0.0.1:8080"),
    ],
)
@pytest.mark.parametrize("source", ["file", "variable", "flag"])
def test_engine_is_one_word_or_a_url_from_every_source(
    tmp_path: Path, word: str, kind: str, url: str | None, source: str
) -> None:
    own(tmp_path, f"engine = '{word}'\n" if source == "file" else "[engine]\nurl = 'http://else.example'\nslots = 5\n")
    environ = {"CODEC_GATEWAY_ENGINE": word} if source == "variable" else {}
    flags = {"engine": word} if source == "flag" else {}

    engine = load_config(None, flags, environ=environ, cwd=tmp_path).engine

    assert (engine.kind, engine.url) == (kind, url)
    assert engine.slots == (2 if source == "file" else 5)


def test_url_of_the_engine_alone_sets_its_kind(tmp_path: Path) -> None:
    own(tmp_path, "[engine]\nkind = 'embedded'\n")

    engine = load_config(None, {"engine.url": "http://e.example:1"}, environ={}, cwd=tmp_path).engine

    assert engine.kind == "url"


def test_engine_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    assert "engine.url is not set" in refuse(tmp_path, "[engine]\nkind = 'url'\n")
    assert "engine.url is set" in refuse(tmp_path, "[engine]\nkind = 'embedded'\nurl = 'http://e.example'\n")
    assert "'embedded', 'none' or http://HOST:PORT, got 'embeded'" in refuse(tmp_path, "engine = 'embeded'\n")


def test_relative_path_starts_at_the_folder_of_its_source(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    for folder in (tmp_path, inner):
        (folder / "map.json").write_text("{}")
    path = own(inner, "[tokens]\nmap = 'map.json'\nmaps = ['map.json']\n[engine]\nmodel = 'map.json'\n")

    config = load_config(path, environ={}, cwd=tmp_path)
    assert config.tokens.map == str(inner / "map.json")
    assert config.tokens.maps == (inner / "map.json",)
    assert config.engine.model == inner / "map.json"

    config = load_config(path, {"tokens.map": Path("map.json"), "tokens.maps": ("map.json",)}, environ={}, cwd=tmp_path)
    assert config.tokens.map == str(tmp_path / "map.json")
    assert config.tokens.maps == (tmp_path / "map.json",)


def test_home_is_expanded_in_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m.json").write_text("{}")

    assert load_config(None, {"tokens.map": "~/m.json"}, environ={}, cwd=Path("/")).tokens.map == str(
        tmp_path / "m.json"
    )


@pytest.mark.parametrize("source", ["flag", "file", "variable"])
def test_model_without_an_engine_is_loaded_by_the_embedded_one(tmp_path: Path, source: str) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    if source == "file":
        (tmp_path / "codec-gateway.toml").write_text('[engine]\nmodel = "m.gguf"\n')
    flags = {"engine.model": model} if source == "flag" else {}
    variables = {"CODEC_GATEWAY_ENGINE__MODEL": str(model)} if source == "variable" else {}

    engine = load_config(None, flags, environ=variables, cwd=tmp_path).engine

    assert (engine.kind, engine.model) == ("embedded", model)


@pytest.mark.parametrize(("engine", "kind"), [("none", "none"), ("http://127.0.0.1:8080", "url")])
@pytest.mark.parametrize("is_flag", [True, False])
def test_model_beside_another_engine_changes_no_kind(tmp_path: Path, engine: str, kind: str, is_flag: bool) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    flags = {"engine": engine} if is_flag else {}
    variables = {} if is_flag else {"CODEC_GATEWAY_ENGINE": engine}

    assert load_config(None, {**flags, "engine.model": model}, environ=variables, cwd=tmp_path).engine.kind == kind


def test_map_none_is_no_map(tmp_path: Path) -> None:
    assert load_config(None, {"tokens.map": "none"}, environ={}, cwd=tmp_path).tokens.map is None


@pytest.mark.parametrize("key", ["tokens.map", "tokens.maps", "engine.model"])
def test_missing_file_behind_a_path_is_refused(tmp_path: Path, key: str) -> None:
    value = ["gone"] if key == "tokens.maps" else "gone"

    with pytest.raises(ConfigError) as caught:
        load_config(None, {key: value}, environ={}, cwd=tmp_path)

    assert caught.value.message.startswith(f"--{key.partition('.')[2]}: ")
    assert str(tmp_path / "gone") in caught.value.message


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


def test_variables_expand_in_our_own_texts(tmp_path: Path) -> None:
    own(tmp_path, "[engine]\nurl = 'http://e.example'\napi_key = '${KEY}'\n")

    assert load_config(None, environ={"KEY": "k-12"}, cwd=tmp_path).engine.api_key == "k-12"
    assert "key 'engine.api_key': the environment variable 'KEY' is not set" in refuse(
        tmp_path, "[engine]\nurl = 'http://e.example'\napi_key = '${KEY}'\n"
    )


@pytest.mark.parametrize(
    ("name", "separator"), [("a__b", "__"), ("a_", "__"), ("a-b", "-"), ("a.b", "__"), ("a" * 65, "__")]
)
def test_own_server_name_that_tools_can_not_carry_is_refused(tmp_path: Path, name: str, separator: str) -> None:
    message = refuse(tmp_path, f"separator = '{separator}'\n[upstreams.'{name}']\ncommand = 'x'\n")

    assert f"server name {name!r}" in message


def test_two_faces_on_one_port_are_refused_but_two_free_ones_are_not(tmp_path: Path) -> None:
    assert "both 9000" in refuse(tmp_path, "[serve]\nport = 9000\nadmin_port = 9000\n")
    own(tmp_path, "[serve]\nport = 0\nadmin_port = 0\n")

    assert load_config(None, environ={}, cwd=tmp_path).serve.port == 0


def test_admin_port_beyond_loopback_is_a_warning(tmp_path: Path) -> None:
    own(tmp_path, "engine = 'embedded'\n[serve]\nadmin_host = '0.0.0.0'\n")

    assert load_config(None, environ={}, cwd=tmp_path).warnings == (
        "serve.admin_host '0.0.0.0' is not loopback, and its pages need no key",
    )


def test_configuration_is_frozen_down_to_its_tables(tmp_path: Path) -> None:
    own(tmp_path, "[upstreams.a]\ncommand = 'x'\nenv = { A = '1' }\n")
    config: GatewayConfig = load_config(None, environ={}, cwd=tmp_path)

    with pytest.raises(TypeError):
        config.upstreams[0].env["A"] = "2"  # type: ignore[index]


def test_engine_of_somebody_else_can_not_be_isolated(tmp_path: Path) -> None:
    said = refuse(tmp_path, "[engine]\nurl = 'http://127.0.0.1:8080'\nisolate = true\n")
    assert "engine.isolate can't be guaranteed for a llama.cpp server at engine.url" in said


def test_slot_files_of_a_server_that_others_may_use_are_refused(tmp_path):
    wanted = "[engine]\nkind = 'url'\nurl = 'http://127.0.0.1:1'\nslot_files = 'slots'\n"
    assert "engine.exclusive is not set" in refuse(tmp_path, wanted)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("kind = 'embedded'\nown_slots = '0-1'", "engine.kind is 'embedded'"),
        ("kind = 'url'\nurl = 'http://127.0.0.1:1'\nown_slots = '0-1'\nexclusive = true", "engine.exclusive says"),
        ("kind = 'url'\nurl = 'http://127.0.0.1:1'\nown_slots = '3-2'", "'3-2' ends before it begins"),
        ("kind = 'url'\nurl = 'http://127.0.0.1:1'\nown_slots = '3'", "engine.own_slots"),
        ("kind = 'embedded'\nserved_model = 'poet'", "engine.served_model is for a vLLM server"),
    ],
)
def test_what_belongs_to_a_server_at_a_url_is_refused_elsewhere(tmp_path: Path, settings: str, reason: str) -> None:
    assert reason in refuse(tmp_path, f"[engine]\n{settings}\n")


def test_isolation_and_a_host_cache_exclude_each_other(tmp_path: Path) -> None:
    said = refuse(tmp_path, "[engine]\nkind = 'embedded'\nisolate = true\ncache_mib = 64\n")
    assert "engine.cache_mib is 64" in said


@pytest.mark.parametrize(("written", "workers"), [("4", 4), ("'auto'", "auto"), ("1", 1)])
def test_workers_are_a_number_or_auto(tmp_path: Path, written: str, workers: int | str) -> None:
    path = own(tmp_path, f"[serve]\nworkers = {written}\n")

    assert load_config(path, environ={}, cwd=tmp_path).serve.workers == workers
    assert load_config(path, {"serve.workers": "3"}, environ={}, cwd=tmp_path).serve.workers == 3
    assert load_config(path, environ={"CODEC_GATEWAY_SERVE__WORKERS": "auto"}, cwd=tmp_path).serve.workers == "auto"


@pytest.mark.parametrize("written", ["0", "257", "'two'", "1.5"])
def test_other_workers_are_refused_by_their_key_alone(tmp_path: Path, written: str) -> None:
    message = refuse(tmp_path, f"[serve]\nworkers = {written}\n")

    assert set(re.findall(r"key ['\"](\S+)['\"]:", message)) == {"serve.workers"}
    assert "expected 'auto'" in message


def test_path_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    with pytest.raises(ConfigError, match=r"loop\.toml"):
        load_config(loop, environ={}, cwd=tmp_path)

    assert "leads nowhere" in refuse(tmp_path, 'engine.model = "a\\u0000b"')
    assert "leads nowhere" in refuse(tmp_path, 'engine.model = "~nobody-of-this-name/m.gguf"')
