"""Overrides of tools in a file: what is read, and what is refused with its table."""

import pytest

from gateway.config.load import load_config
from gateway.config.overrides import OWN_TOOLS, AnnotationsSection, OverrideSection, ToolOverride
from gateway.config.show import show_config
from gateway.errors import ConfigError
from gateway.proxy.tool_search import DEFINITIONS

SERVERS = '[upstreams.a]\ncommand = "x"\n[upstreams.b]\ncommand = "x"\n'


def load(tmp_path, text, **environ):
    path = tmp_path / "codec-gateway.toml"
    path.write_text(SERVERS + text)
    return load_config(path, environ=environ, cwd=tmp_path)


def refuse(tmp_path, text):
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text)
    return raised.value.message


def test_every_key_can_be_written_for_a_server_and_for_a_view(tmp_path):
    table = """
    name = "find"
    title = "Find"
    description = "Finds ${WHAT}."
    annotations = { title = "F", readOnlyHint = true, openWorldHint = false }
    defaults = { limit = 5, tags = ["x", { y = 1.5 }], owner = "${env:WHO}" }
    """
    config = load(
        tmp_path, f"[upstreams.a.overrides.search]\n{table}\n[views.v.overrides.find]\n{table}", WHAT="it", WHO="ann"
    )
    expected = ToolOverride(
        "find",
        "Find",
        "Finds it.",
        {"title": "F", "readOnlyHint": True, "openWorldHint": False},
        {"limit": 5, "tags": ["x", {"y": 1.5}], "owner": "ann"},
    )

    assert config.upstreams[0].overrides == {"search": expected}
    assert config.views["v"].overrides == {"find": expected}
    assert list(OverrideSection.model_fields) == list(ToolOverride.__dataclass_fields__)
    assert all(info.description for info in AnnotationsSection.model_fields.values())


def test_default_that_sounds_secret_is_not_printed(tmp_path):
    config = load(tmp_path, '[views.v.overrides.a__x.defaults]\napi_key = "hush"\nzone = "UTC"\n')

    shown = show_config(config)["views"]["v"]["overrides"]["a__x"]
    assert shown["defaults"] == {"api_key": "****", "zone": "UTC"}


def test_names_of_the_gateways_own_tools_are_written_once():
    assert tuple(each["name"] for each in DEFINITIONS) == OWN_TOOLS


@pytest.mark.parametrize("name", ["", "a b", "a.b", "é", "x" * 65, "a\\nb", "\\u202enow"])
@pytest.mark.parametrize("table", ["upstreams.a.overrides.x", "views.v.overrides.a__x"])
def test_unsafe_name_is_refused_by_its_table_and_line(tmp_path, table, name):
    message = refuse(tmp_path, f'[{table}]\ntitle = "t"\nname = "{name}"\n')

    assert message.startswith(f"{tmp_path}/codec-gateway.toml:7: key '{table}.name': expected a text that matches")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("upstreams.a.overrides.x", "upstreams.a.overrides.y"),
        ("upstreams.a.overrides.x", "upstreams.b.overrides.x"),
        ("views.v.overrides.a__x", "views.v.overrides.b__x"),
    ],
)
def test_name_of_two_tools_is_refused_with_both_tables(tmp_path, first, second):
    message = refuse(tmp_path, f'[{first}]\nname = "same"\n[{second}]\nname = "same"\n')

    assert message.endswith(f":8: {second}.name: 'same' is already the name of {first}: choose another")


@pytest.mark.parametrize("table", ["upstreams.a.overrides.x", "views.v.overrides.a__x"])
@pytest.mark.parametrize("name", OWN_TOOLS)
def test_name_of_the_gateways_own_tools_is_refused(tmp_path, table, name):
    message = refuse(tmp_path, f'[{table}]\nname = "{name}"\n')

    assert f"{table}.name: {name!r} is already the name of the gateway's own tool" in message


def test_name_that_another_override_of_the_view_shows_to_exist_is_refused_unless_it_goes_away(tmp_path):
    swap = '[views.v.overrides.a__x]\nname = "b__x"\n[views.v.overrides.b__x]\n'

    assert "already the name of views.v.overrides.b__x" in refuse(tmp_path, swap + 'title = "B"\n')
    assert load(tmp_path, swap + 'name = "a__x"\n').views["v"].overrides["a__x"].name == "b__x"


def test_views_may_give_one_name_to_different_tools(tmp_path):
    one, other = "[views.v.overrides.a__x]", "[views.w.overrides.b__x]"

    assert len(load(tmp_path, f'{one}\nname = "find"\n{other}\nname = "find"\n').views) == 2


@pytest.mark.parametrize("value", ["2024-01-01", "12:00:00", "nan", "[inf]", "{ a = 2024-01-01T00:00:00Z }"])
def test_default_that_json_does_not_have_is_refused(tmp_path, value):
    message = refuse(tmp_path, f"[upstreams.a.overrides.x.defaults]\nsince = {value}\n")

    assert "key 'upstreams.a.overrides.x.defaults': expected values that JSON has" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[upstreams.a.overrides.x]\ndescripton = ''", "'upstreams.a.overrides.x.descripton': did you mean 'descri"),
        ("[views.v.overrides.x]\nnaem = ''", "'views.v.overrides.x.naem': did you mean 'name'?"),
        ("[upstreams.a.overrides.x.annotations]\nreadOnly = true", "did you mean 'readOnlyHint'?"),
        ("[upstreams.a.overrides.x.annotations]\nreadOnlyHint = 'yes'", "expected true or false, got 'yes'"),
        ("[upstreams.a.auth]\nissuers = ''", "'upstreams.a.auth.issuers': did you mean 'issuer'?"),
        ("[upstreams.a.overrides]\nx = 'find'", "key 'upstreams.a.overrides.x': expected a table"),
    ],
)
def test_wrong_key_names_the_one_that_was_meant(tmp_path, text, words):
    assert words in refuse(tmp_path, text)
