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
from gateway.config.gateway_config import (
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
from gateway.config.load import load_config, written_keys
from gateway.config.overrides import ToolOverride
from gateway.config.section import Section
from gateway.config.settings import AgentSection, EngineSection, LimitsSection, ServeSection, TokensSection
from gateway.config.show import show_config
from gateway.config.tables import UpstreamSection
from gateway.errors import ConfigError
from gateway.escape import MASK
from tests.cases import each_of
from tests.gateway.config.own_files import own, refuse

AT = "url = 'http://127.0.0.1:1'"
UNWRITTEN = {"name", "secrets", "manifest_hosts", "manifest_state"}


def test_nothing_given_is_the_defaults(tmp_path: Path) -> None:
    config = load_config(None, environ={}, cwd=tmp_path)

    assert config.engine == EngineConfig()
    assert config.tokens == TokensConfig()
    assert config.limits == LimitsConfig()
    assert config.serve == ServeConfig(keys=tmp_path / "keys.toml")
    assert config.upstreams == ()
    assert config.warnings == ("no MCP server and no engine is configured: there is nothing to serve",)


@each_of(
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
        client_sessions = 5
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
    assert (time.client_sessions, time.concurrency, time.queue, time.idle_stop) == (5, 2, 3, 60.0)
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
        ("kind = 'embedded'\nserved_model = 'poet'", "engine.served_model is for a server at engine.url"),
        ("slot_files = 'slots'", "engine.kind is 'none'"),
        ("exclusive = true\nslot_files = 'slots'", "engine.kind is 'none'"),
    ],
)
def test_what_belongs_to_a_server_at_a_url_is_refused_elsewhere(tmp_path: Path, settings: str, reason: str) -> None:
    assert reason in refuse(tmp_path, f"[engine]\n{settings}\n")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (f"{AT}\nchat_template = 'chatml'", "is for the embedded engine, but engine.url names a server"),
        ("kind = 'embedded'\nchat_template = 'gone.jinja'", "expected a file or 'chatml'"),
    ],
)
def test_template_that_no_engine_gets_is_refused(tmp_path: Path, settings: str, reason: str) -> None:
    assert reason in refuse(tmp_path, f"[engine]\n{settings}\n")


@pytest.mark.parametrize(
    "settings",
    [
        "kind = 'embedded'\nisolate = true\ncache_mib = 0",
        "kind = 'embedded'\ncache_mib = 64",
        "kind = 'embedded'\nchat_template = 'chatml'",
        "kind = 'embedded'\nchat_template = 'codec-gateway.toml'",
        "kind = 'embedded'\nslot_files = 'slots'",
        f"{AT}\nslot_files = 'off'",
        f"{AT}\nexclusive = true\nslot_files = 'slots'",
        f"{AT}\napi = 'vllm'\nisolate = true",
        f"{AT}\nserved_model = 'poet'",
        f"{AT}\napi = 'llama_cpp'\nserved_model = 'poet'",
        f"{AT}\nown_slots = '2-2'",
    ],
)
def test_settings_of_an_engine_that_fit_together_are_taken(tmp_path: Path, settings: str) -> None:
    own(tmp_path, f"[engine]\n{settings}\n")

    assert load_config(None, environ={}, cwd=tmp_path).has_engine


@pytest.mark.parametrize(
    ("own_slots", "slots"), [("own_slots = '2-5'", range(2, 6)), ("own_slots = '0-0'", range(1)), ("", None)]
)
def test_own_slots_are_from_the_first_to_the_last(tmp_path: Path, own_slots: str, slots: range | None) -> None:
    own(tmp_path, f"[engine]\n{AT}\n{own_slots}\n")

    assert load_config(None, environ={}, cwd=tmp_path).engine.slot_range == slots


@pytest.mark.parametrize("path", ["", "/v1", "/v1/", "/v1/chat/completions", "/v1/models//"])
def test_path_of_an_api_behind_an_engine_s_address_is_left_out(tmp_path: Path, path: str) -> None:
    assert load_config(None, {"engine": f"http://e:1{path}"}, environ={}, cwd=tmp_path).engine.url == "http://e:1"


@pytest.mark.parametrize(
    ("url", "is_own"),
    [
        ("http://localhost:8600", True),
        ("http://127.0.0.1:8601/v1", True),
        ("http://127.0.0.1:8602", False),
        ("http://gpu:8600", False),
    ],
)
def test_engine_at_the_gateway_s_own_port_is_refused(tmp_path: Path, url: str, is_own: bool) -> None:
    if is_own:
        with pytest.raises(ConfigError, match=f"'{url.removesuffix('/v1')}', which is this gateway's own port"):
            load_config(None, {"engine": url}, environ={}, cwd=tmp_path)
    else:
        assert load_config(None, {"engine": url}, environ={}, cwd=tmp_path).engine.url == url


@pytest.mark.parametrize(
    ("written", "origin"),
    [
        ("http://localhost:6274", "http://localhost:6274"),
        ("HTTPS://A.example:443/", "https://a.example"),
        ("http://[::1]:80", "http://[::1]"),
        ("http://a:443", "http://a:443"),
        ("https://a/path", None),
        ("https://a?q", None),
        ("https://a#f", None),
        ("https://u@a", None),
        ("ws://a", None),
        ("*", None),
    ],
)
def test_origin_of_a_page_is_read_as_browsers_write_it(tmp_path: Path, written: str, origin: str | None) -> None:
    toml = f"[serve]\ncors_origins = ['{written}']\n"
    if origin is None:
        assert f"serve.cors_origins: {written!r} is no origin" in refuse(tmp_path, toml)
    else:
        own(tmp_path, toml)
        assert load_config(None, environ={}, cwd=tmp_path).serve.cors_origins == (origin,)


def test_written_keys_are_those_of_the_file_and_the_environment(tmp_path: Path) -> None:
    own(tmp_path, "[serve]\nport = 9\n")

    keys = written_keys(None, environ={"CODEC_GATEWAY_LIMITS__TURNS": "3"}, cwd=tmp_path)
    assert keys >= {"serve", "serve.port", "limits", "limits.turns"}
    assert not keys & {"serve.host", "limits.drain"}
    assert "serve.port" not in written_keys(None, environ={}, cwd=tmp_path.parent)


def test_view_s_name_is_that_of_a_part_of_a_path(tmp_path: Path) -> None:
    own(tmp_path, f"[views.{'a' * 64}]\n")
    assert list(load_config(None, environ={}, cwd=tmp_path).views) == ["a" * 64]

    for name in ("a b", "a" * 65, ""):
        assert "a view's name must have 1 to 64 letters" in refuse(tmp_path, f"[views.'{name}']\n")


def test_view_of_the_server_of_its_name_alone_is_no_surprise(tmp_path: Path) -> None:
    own(tmp_path, "[upstreams.a]\ncommand = 'x'\n[views.a]\nservers = ['a']\n[views.b]\nservers = ['a', 'c', 'd']\n")

    assert load_config(None, environ={}, cwd=tmp_path).warnings == ("views.b.servers: there is no server 'c', 'd'",)


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
