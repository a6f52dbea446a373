"""What a stdio server inherits of the gateway's environment."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.load import load_config
from gateway.config.programs import NETWORK, PROGRAM, inherited
from gateway.config.show import show_config
from gateway.errors import ConfigError
from tests.cases import each_of

OUTER = {
    **dict.fromkeys(NETWORK, "network"),
    "PATH": "/bin",
    "AWS_PROFILE": "a",
    "AWS_REGION": "b",
    "GITHUB_TOKEN": "ghp_secret",
    "CODEC_GATEWAY_TOKEN": "ours-alone",
}


def test_proxies_and_certificates_are_inherited_and_nothing_else_of_use_to_a_thief():
    assert set(inherited((), OUTER)) == {"PATH", *NETWORK}
    assert {"HTTPS_PROXY", "https_proxy", "NO_PROXY", "all_proxy", "SSL_CERT_FILE", "CURL_CA_BUNDLE"} <= set(NETWORK)


@each_of(
    ("inherit", "more"),
    [
        (("AWS_PROFILE",), {"AWS_PROFILE"}),
        (("AWS_*",), {"AWS_PROFILE", "AWS_REGION"}),
        (("aws_*", "NOT_SET"), set()),
        (True, {"AWS_PROFILE", "AWS_REGION", "GITHUB_TOKEN"}),
        (("*",), {"AWS_PROFILE", "AWS_REGION", "GITHUB_TOKEN"}),
        (("CODEC_GATEWAY_TOKEN",), {"CODEC_GATEWAY_TOKEN"}),
        (("CODEC_*",), set()),
        (("AWS_PROFILE", "AWS_PROFILE", "GITHUB_TOKEN"), {"AWS_PROFILE", "GITHUB_TOKEN"}),
        (("*_TOKEN",), {"GITHUB_TOKEN"}),
        (("AWS_REGIO?", "AWS_REGION_?"), {"AWS_REGION"}),
        (("*", "CODEC_GATEWAY_TOKEN"), {"AWS_PROFILE", "AWS_REGION", "GITHUB_TOKEN", "CODEC_GATEWAY_TOKEN"}),
        (("", " AWS_PROFILE", "AWS_PROFILE=a"), set()),
    ],
)
def test_more_is_inherited_by_name_or_pattern_but_the_gateways_own_by_whole_names_only(inherit, more):
    assert set(inherited(inherit, OUTER)) == {"PATH", *NETWORK, *more}


NAMES = st.sampled_from((*NETWORK, *PROGRAM)) | st.text(min_size=1, max_size=8)


@given(st.dictionaries(NAMES, st.text(max_size=20)))
def test_whatever_else_is_set_just_the_usual_variables_are_inherited_unchanged(outer):
    usual = {name: value for name, value in outer.items() if name in NETWORK or name in PROGRAM}

    assert inherited((), outer) == usual
    assert inherited(True, outer) == {name: value for name, value in outer.items() if not name.startswith("CODEC_")}


def test_nothing_for_the_network_is_inherited_if_the_operator_says_so():
    assert set(inherited(False, OUTER)) == {"PATH"}


def load(tmp_path, value):
    path = tmp_path / "codec-gateway.toml"
    path.write_text(f'[upstreams.up]\ncommand = "x"\ninherit_env = {json.dumps(value)}\n')
    return load_config(path, environ=OUTER, cwd=tmp_path)


@pytest.mark.parametrize("value", [True, False, ["AWS_*", "HOME"]])
def test_setting_is_read_and_shown(tmp_path, value):
    config = load(tmp_path, value)

    assert config.upstreams[0].inherit_env == (tuple(value) if isinstance(value, list) else value)
    assert show_config(config)["upstreams"]["up"]["inherit_env"] == value


def test_wrong_setting_is_refused_with_what_it_may_be(tmp_path):
    with pytest.raises(ConfigError, match=r"inherit_env.*expected true or false or a list"):
        load(tmp_path, "AWS_PROFILE")


def test_inherited_secret_is_masked_where_the_server_shows_it(tmp_path):
    assert load(tmp_path, ["GITHUB_*"]).upstreams[0].secrets == {"ghp_secret"}
    assert load(tmp_path, []).upstreams[0].secrets == frozenset()


@pytest.mark.parametrize("where", ["inherited", "env"])
@pytest.mark.parametrize(
    ("proxy", "secrets"),
    [
        ("http://me:p%40ss77@proxy:8080", {"p%40ss77", "p@ss77"}),
        ("http://proxy:8080", set()),
        ("http://[me:x@proxy", set()),
    ],
)
def test_password_of_a_proxy_is_masked_where_the_server_shows_it(tmp_path, where, proxy, secrets):
    path = tmp_path / "codec-gateway.toml"
    env = f'env = {{ HTTPS_PROXY = "{proxy}" }}\n' if where == "env" else ""
    path.write_text(f'[upstreams.up]\ncommand = "x"\n{env}')
    config = load_config(path, environ={"HTTPS_PROXY": proxy} if where == "inherited" else {}, cwd=tmp_path)

    assert config.upstreams[0].secrets == secrets
