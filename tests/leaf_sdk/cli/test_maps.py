"""The verbs of `codec-leaf map` on real files: what they write, what they say, and how they end."""

import base64
import functools
import json
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from leaf_sdk import load_map
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from leaf_sdk.vocab import map_digest
from tests.leaf_sdk.cli.conftest import run

TINY = json.loads(tiny_map_bytes())


def written(tmp_path: Path, name: str, **changed: object) -> Path:
    path = tmp_path / name
    path.write_text(json.dumps(TINY | changed))
    return path


def test_a_tiktoken_file_needs_its_cut_and_its_special_tokens_named(tmp_path):
    ranks = [bytes([byte]) for byte in range(256)] + [b"he", b"hel", b"lo", b"hello"]
    source, output = tmp_path / "x.tiktoken", tmp_path / "map.json"
    source.write_bytes(b"\n".join(base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(ranks)))

    refused = run("map", "build", source, "-o", output)
    assert refused.returncode == 3
    assert "cl100k" in refused.stderr

    done = run("map", "build", source, "-o", output, "--cut", "cl100k", "--special", "<|end|>=300", "--id", "lab/x")
    assert (done.returncode, done.stderr) == (0, "")
    built = load_map(output.read_bytes())
    assert built.encode("hello<|end|>", specials=True) == [259, 300]
    assert run("map", "build", source, "-o", output, "--cut", "nonsense").returncode == 2
    assert run("map", "build", source, "-o", output, "--cut", "cl100k", "--special", "x").returncode == 2


@pytest.mark.parametrize("verb", ["hash", "show"])
def test_json_that_is_no_map_has_no_name_and_is_not_shown(tmp_path, verb):
    source = tmp_path / "servers.json"
    source.write_text('{"mcpServers": {}}')

    done = run("map", verb, source)

    assert (done.returncode, done.stdout) == (3, "")
    assert "expected a Codec map; is this the right file?" in done.stderr


def test_a_version_1_map_is_converted_to_one_that_decodes_the_same(tmp_path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text('{"id": "x/y", "version": "1", "vocab_size": 3, "tokens": {"2": " c", "0": "a", "1": "b"}}')

    done = run("map", "convert", old, "-o", new, "--id", "lab/y", "--published-at", "2026-11-21")

    assert done.stdout == map_digest(new.read_bytes()) + "\n"
    converted = load_map(new.read_bytes(), decode_only=True)
    assert converted.decode([0, 1, 2]) == "ab c"
    assert (converted.id, converted.version, converted.published_at) == ("lab/y", "2", "2026-11-21")


@pytest.mark.parametrize(
    "text",
    [
        tiny_map_bytes().decode(),
        '{"id": "codec-test/tiny", "version": "1", "vocab_size": 1, "tokens": {"0": "a"}}',
    ],
    ids=["version 2", "version 1"],
)
def test_a_finished_map_is_not_built_again_and_the_command_for_it_is_named(tmp_path, text):
    source, output = tmp_path / "map.json", tmp_path / "again.json"
    source.write_text(text)

    done = run("map", "build", source, "-o", output)

    name = json.loads(text)["id"]
    assert (done.returncode, output.exists()) == (3, False)
    assert done.stderr == (
        f"codec-leaf: the file is already a Codec map, {name!r}, not a tokenizer's file: "
        "use it as it is, or rewrite it with codec-leaf map convert\n"
    )


def test_converting_adds_dictionaries_and_keeps_what_it_does_not_know(tmp_path):
    source = written(tmp_path, "a.json", zzz={"kept": True})
    (tmp_path / "d.zstd").write_bytes(b"dictionary")

    run("map", "convert", source, "-o", tmp_path / "b.json", "--dictionary", f"msgpack={tmp_path}/d.zstd=https://x/d")

    fields = json.loads((tmp_path / "b.json").read_bytes())
    assert fields["zzz"] == {"kept": True}
    (dictionary,) = load_map((tmp_path / "b.json").read_bytes()).zstd_dictionaries
    assert (dictionary.format, dictionary.url, dictionary.size_bytes) == ("msgpack", "https://x/d", 10)
    assert dictionary.hash == map_digest(b"dictionary")


def test_maps_of_one_tokenizer_do_not_differ(map_path, tmp_path):
    done = run("map", "diff", map_path, written(tmp_path, "other.json", id="codec-test/renamed"))
    assert done.returncode == 0
    assert "other fields: none" in done.stdout


def test_diff_says_which_tokens_differ(map_path, tmp_path):
    vocab = {token: i for token, i in TINY["vocab"].items() if token != "!"} | {"new": 400, "Ġ": 401}
    other = written(tmp_path, "other.json", vocab=vocab, x_ignore_merges=True)

    shown = run("map", "diff", map_path, other)
    report = json.loads(run("map", "diff", map_path, other, "--json").stdout)

    assert shown.returncode == 1
    assert "'!' 33" in shown.stdout
    assert report["only in the first"] == {"!": 33}
    assert report["only in the second"] == {"new": 400}
    assert report["another id"] == {"Ġ": "32 and 401"}
    assert report["fields"] == ["ignore_merges"]


def test_show_tells_of_a_map_that_only_decodes(tmp_path):
    path = tmp_path / "v1.json"
    path.write_text('{"id": "x", "version": "1", "vocab_size": 2, "tokens": {"0": "a", "1": "b"}}')
    assert "only decodes" in run("map", "show", path).stdout
    assert json.loads(run("map", "show", path, "--json").stdout)["id"] == "x"


def test_a_map_that_keeps_its_promises_is_verified(map_path):
    done = run("map", "verify", map_path, "--hash", tiny_map().map_id, "--samples", 200)
    assert (done.returncode, done.stderr) == (0, "")
    assert "round trip: 0 of 200 differ" in done.stdout


def test_a_map_of_another_hash_is_not_verified(map_path):
    assert run("map", "verify", map_path, "--hash", "0" * 64).returncode == 3


def test_a_map_is_held_against_a_tokenizer_json(map_path, tmp_path):
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel

    merges = [tuple(line.split(" ")) for line in TINY["merges"]]
    reference = Tokenizer(BPE(vocab=TINY["vocab"], merges=merges))
    reference.pre_tokenizer = ByteLevel(add_prefix_space=False)
    reference.save(str(tmp_path / "same.json"))
    reference.model = BPE(vocab=TINY["vocab"], merges=merges[:3])
    reference.save(str(tmp_path / "other.json"))

    assert run("map", "verify", map_path, "--against", tmp_path / "same.json").returncode == 0
    different = run("map", "verify", map_path, "--against", tmp_path / "other.json", "--json")
    assert different.returncode == 1
    assert json.loads(different.stdout)["tokenizer.json"]["examples"]
    assert run("map", "verify", map_path, "--against", map_path).returncode == 3


@pytest.mark.engine
def test_a_map_is_held_against_a_running_engine(engine_url, smollm_path, map_path):
    same = run("map", "verify", smollm_path, "--engine", engine_url, "--samples", 150)
    other = run("map", "verify", map_path, "--engine", engine_url, "--samples", 50)

    assert same.returncode == 0, same.stdout
    assert "engine: 0 of" in same.stdout
    assert other.returncode == 1
    assert "other  [" in other.stdout


def test_an_engine_that_is_none_is_named(map_path):
    for address in ("http://127.0.0.1:9", "nonsense"):
        done = run("map", "verify", map_path, "--engine", address, "--samples", 1)
        assert done.returncode == 3
        assert address in done.stderr


def test_what_is_published_is_found_by_its_name(map_path, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "d.zstd").write_bytes(b"dictionary")
    handler = functools.partial(Quiet, directory=str(root))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{server.server_port}"
    try:
        run("map", "publish", written(tmp_path, "z.json", id="codec-test/z"), "--to", root, "--origin", origin)
        done = run(*("map", "publish", map_path, "--to", root, "--origin", origin, "--dictionary", tmp_path / "d.zstd"))
        assert (done.returncode, done.stderr) == (0, "")
        index = json.loads((root / ".well-known/codec/index.json").read_bytes())
        assert [entry["id"] for entry in index["maps"]] == ["codec-test/z", "codec-test/tiny"]
        kept = root / f".well-known/codec/dicts/{map_digest(b'dictionary').removeprefix('sha256:')}.zstd"
        assert kept.read_bytes() == b"dictionary"

        fetched = run("map", "fetch", origin, "codec-test/tiny", "-o", tmp_path / "fetched.json")
        assert fetched.stdout == tiny_map().map_id + "\n"
        assert (tmp_path / "fetched.json").read_bytes() == map_path.read_bytes()
        listed = run("map", "list", origin).stdout.splitlines()
        assert f"{tiny_map().map_id}  codec-test/tiny" in listed
        assert [line.split()[1] for line in listed] == ["codec-test/z", "codec-test/tiny"]
        in_json = json.loads(run("map", "list", origin, "--json").stdout)
        assert [each["hash"] for each in in_json] == [line.split()[0] for line in listed]
        missing = run("map", "fetch", origin, "codec-test/none", "-o", tmp_path / "none.json")
        assert (missing.returncode, "404" in missing.stderr) == (3, True)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("origin", ["http://example.org", "ftp://example.org", "example.org"])
def test_maps_are_published_for_addresses_that_are_fetched_from(map_path, tmp_path, origin):
    assert run("map", "publish", map_path, "--to", tmp_path, "--origin", origin).returncode == 3


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_args):
        pass
