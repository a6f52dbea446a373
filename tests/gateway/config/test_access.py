"""The settings about who may call and what is written down."""

from pathlib import Path

import pytest

from gateway.config.access import AuditConfig, TelemetryConfig, TrajectoriesConfig
from gateway.config.gateway_config import GatewayConfig
from gateway.config.load import load_config
from gateway.errors import ConfigError

OAUTH = 'issuer = "https://id.example"\nresource = "https://gateway.example/mcp"\n'


def load(folder: Path, toml: str, environ: dict[str, str] | None = None) -> GatewayConfig:
    path = folder / "codec-gateway.toml"
    path.write_text(toml)
    return load_config(path, environ=environ or {}, cwd=Path("/"))


def refuse(folder: Path, toml: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, toml)
    return caught.value.message


def test_keys_are_looked_for_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')

    assert load(tmp_path, "").serve.keys == tmp_path / "keys.toml"
    assert load_config(tmp_path / "mcp.json", environ={}, cwd=Path("/")).serve.keys == tmp_path / "keys.toml"
    assert load(tmp_path, '[serve]\nkeys = "secret/k.toml"\n').serve.keys == tmp_path / "secret" / "k.toml"


def test_issuer_and_resource_are_enough_for_oauth(tmp_path: Path) -> None:
    oauth = load(tmp_path, f"[serve.oauth]\n{OAUTH}").serve.oauth

    assert oauth is not None
    assert oauth.audience == "https://gateway.example/mcp"
    assert oauth.scopes == ("mcp:server:*",)
    assert oauth.jwks_url is None
    assert all(not name.startswith("HS") for name in oauth.algorithms)


def test_what_is_written_for_oauth_counts(tmp_path: Path) -> None:
    environ = {"CODEC_GATEWAY_SERVE__OAUTH__ALGORITHMS": "ES256,EdDSA", "CODEC_GATEWAY_SERVE__OAUTH__SCOPES": "a,b"}
    oauth = load(tmp_path, f'[serve.oauth]\n{OAUTH}audience = "api://x"\nrate = 7\n', environ).serve.oauth

    assert oauth is not None
    assert (oauth.audience, oauth.rate, oauth.algorithms, oauth.scopes) == (
        "api://x",
        7,
        ("ES256", "EdDSA"),
        ("a", "b"),
    )


@pytest.mark.parametrize("algorithm", ["HS256", "none", "rs256"])
def test_shared_secrets_and_no_signature_can_not_be_allowed(tmp_path: Path, algorithm: str) -> None:
    assert "algorithms" in refuse(tmp_path, f'[serve.oauth]\n{OAUTH}algorithms = ["{algorithm}"]\n')


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ('audience = "x"', "'audience' is set without 'issuer'"),
        ('issuer = "https://id.example"', "serve.oauth.resource is not set"),
        ('issuer = "http://id.example"\nresource = "https://g.example/mcp"', "serve.oauth.issuer"),
        ('issuer = "https://id.example"\nresource = "gateway"', "serve.oauth.resource"),
        (OAUTH + 'jwks_url = "http://id.example/keys"', "serve.oauth.jwks_url"),
        (OAUTH + 'jwks_url = "https://id.example/keys#x"', "serve.oauth.jwks_url"),
        (OAUTH + "algorithms = []", "algorithms"),
        (OAUTH + "leeway = 3600", "leeway"),
        (OAUTH + 'isuer = "x"', "did you mean 'issuer'"),
        ('issuer = "https://id.example/{x}"\nresource = "https://g.example/mcp"', "serve.oauth.issuer"),
        ('issuer = "https://id.exämple"\nresource = "https://g.example/mcp"', "serve.oauth.issuer"),
    ],
)
def test_half_an_oauth_table_is_refused_by_name(tmp_path: Path, toml: str, named: str) -> None:
    assert named in refuse(tmp_path, f"[serve.oauth]\n{toml}\n")


def test_issuer_on_this_machine_needs_no_tls(tmp_path: Path) -> None:
    oauth = load(
        tmp_path, '[serve.oauth]\nissuer = "http://127.0.0.1:9"\nresource = "http://localhost:8600/mcp"\n'
    ).serve.oauth

    assert oauth is not None
    assert oauth.issuer == "http://127.0.0.1:9"


def test_audit_path_starts_from_the_file_s_folder(tmp_path: Path) -> None:
    assert load(tmp_path, "").audit == AuditConfig()
    assert load(tmp_path, '[audit]\npath = "calls.jsonl"\narguments = true\n').audit == AuditConfig(
        tmp_path / "calls.jsonl", arguments=True
    )


def test_trajectories_are_written_only_where_the_file_says(tmp_path: Path) -> None:
    assert load(tmp_path, "").trajectories == TrajectoriesConfig()
    assert load(tmp_path, '[trajectories]\npath = "t.jsonl"\nlogprobs = true\n').trajectories == TrajectoriesConfig(
        tmp_path / "t.jsonl", logprobs=True
    )


def test_token_of_the_console_is_too_long_to_guess(tmp_path: Path) -> None:
    assert load(tmp_path, f'[console]\ntoken = "{"t" * 32}"\n').console.token == "t" * 32
    assert "console.token': expected at least 32 characters" in refuse(tmp_path, f'[console]\ntoken = "{"t" * 31}"\n')


def test_telemetry_endpoint_must_be_a_url(tmp_path: Path) -> None:
    assert load(tmp_path, '[telemetry]\notlp_endpoint = "http://c:4318"\n').telemetry == TelemetryConfig(
        "http://c:4318"
    )
    assert "telemetry.otlp_endpoint" in refuse(tmp_path, '[telemetry]\notlp_endpoint = "c:4318"\n')
