"""Bolt-ons in the configuration: where manifests may lie, what an endpoint may be, and that a change is noticed."""

import os
from pathlib import Path

import pytest

from gateway.config.load import load_config
from gateway.config.programs import is_listed
from gateway.config.show import show_config
from gateway.errors import ConfigError
from tests.cases import each_of


def own(folder: Path, text: str) -> Path:
    path = folder / "codec-gateway.toml"
    path.write_text(text)
    return path


def load(folder: Path, text: str):
    return load_config(own(folder, text), environ={}, cwd=folder)


def test_relative_manifest_starts_from_the_files_folder_and_is_watched(tmp_path: Path) -> None:
    (tmp_path / "tool" / "inner").mkdir(parents=True)
    (tmp_path / "tool" / "a.json").write_text("{}")
    (tmp_path / "tool" / "inner" / "manifest.json").write_text("{}")
    (tmp_path / "tool" / "notes.txt").write_text("no manifest")

    config = load(tmp_path, '[upstreams.bolts]\nmanifest = "tool"\n')

    (bolts,) = config.upstreams
    assert (bolts.manifest, bolts.transport, bolts.protocol) == (str(tmp_path / "tool"), "bolt-on", "modern")
    names = {str(path.relative_to(tmp_path)) for path in config.files}
    assert names == {"codec-gateway.toml", "tool", "tool/a.json", "tool/inner/manifest.json"}


def test_changed_manifest_is_another_upstream_and_an_untouched_one_the_same(tmp_path: Path) -> None:
    manifest = tmp_path / "tool.json"
    manifest.write_text("{}")
    text = '[upstreams.bolts]\nmanifest = "tool.json"\n'
    first, again = load(tmp_path, text).upstreams[0], load(tmp_path, text).upstreams[0]
    os.utime(manifest, ns=(1, 1))
    changed = load(tmp_path, text).upstreams[0]

    assert first == again
    assert changed != first


def test_url_is_read_anew_with_every_configuration(tmp_path: Path) -> None:
    text = (
        '[registry]\nallowed_hosts = ["tools.example"]\n'
        '[upstreams.bolts]\nmanifest = "https://tools.example/time.json"\n'
    )
    first, second = load(tmp_path, text).upstreams[0], load(tmp_path, text).upstreams[0]

    assert first.manifest_hosts == ("tools.example",)
    assert first != second
    assert load(tmp_path, text).files == (tmp_path / "codec-gateway.toml",)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('manifest = "https://tools.example/time.json"', "registry.allowed_hosts"),
        ('manifest = "ftp://tools.example/time.json"', "registry.allowed_hosts"),
        ('manifest = "nowhere"', "does not exist"),
        ('manifest = "."\nurl = "http://x/mcp"', "both 'url' and 'manifest'"),
        ('manifest = "."\nendpoint = "unix:relative"', "'endpoint'"),
        ('manifest = "."\nendpoint = "file:///etc/passwd"', "'endpoint'"),
        ('manifest = "."\nheaders = { A = "b" }', "'headers' without 'endpoint'"),
        ('manifest = "."\noauth = { client_id = "a", client_secret = "b" }', "'oauth', which needs 'url', but"),
        ('command = "x"\nendpoint = "http://x"', "'endpoint', which needs 'manifest', but it has 'command'"),
        ('url = "http://x/mcp"\nrequire_match = true', "'require_match', which needs 'manifest', but it has 'url'"),
    ],
)
def test_wrong_bolt_on_is_refused_by_name(tmp_path: Path, lines: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, f"[upstreams.bolts]\n{lines}\n")

    assert words in refused.value.message
    assert "'bolts'" in refused.value.message


@each_of(
    ("url", "hosts", "listed"),
    [
        ("https://tools.example/a", ["tools.example"], True),
        ("https://TOOLS.example/a", ["tools.Example"], True),
        ("https://tools.example/a", ["tools.example:443"], True),
        ("http://tools.example/a", ["tools.example:443"], False),
        ("http://tools.example:81/a", ["tools.example:80"], False),
        ("http://[::1]:81/a", ["[::1]:81"], True),
        ("https://tools.example.evil/a", ["tools.example"], False),
        ("https://tools.example@evil/a", ["tools.example"], False),
        ("https://evil/a", [], False),
    ],
)
def test_only_a_host_that_is_listed_is_listed(url: str, hosts: list[str], listed: bool) -> None:
    assert is_listed(url, hosts) is listed


def test_shown_bolt_on_hides_its_headers(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("{}")
    config = load(
        tmp_path,
        '[upstreams.bolts]\nmanifest = "t.json"\nendpoint = "http://h:1"\nheaders = { X = "Bearer abcd1234" }\n',
    )

    shown = show_config(config)["upstreams"]["bolts"]
    assert shown["headers"] == {"X": "****"}
    assert (shown["transport"], shown["endpoint"], shown["require_match"]) == ("bolt-on", "http://h:1", False)
    assert "abcd1234" not in str(shown)
