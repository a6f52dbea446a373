"""A bolt-on and its manifest are judged rule by rule, on the wire and on the disk, a broken one by its own rule."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import uvicorn

from leaf_sdk import CodecTool, CodecToolResult, Fragments, Manifest, ModelBinding, ModelMap, fill, precache
from leaf_sdk.leaf.bolt_on import CALL_PATH
from leaf_sdk.serve.bolt_on import CallApp
from leaf_sdk.testing import tiny_map
from leaf_sdk.testing.conformance.bolt_on import check_bolt_on
from leaf_sdk.testing.conformance.manifest import check_manifests

TINY = tiny_map()
HEX = TINY.map_id.removeprefix("sha256:")
MODEL = ModelMap("org/tiny", TINY, HEX)
TEXTS = {"greeting": "hello {name}, the world"}
ASKED = {"greet": {"name": "<|im_end|>"}}
MANIFEST = Manifest(
    name="greet",
    version="1",
    description="Greet somebody",
    arguments_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    models=(ModelBinding("org/tiny", HEX, "caches/tiny.json"),),
)


def _tool(kind=CodecTool, manifest=MANIFEST) -> CodecTool:
    fragments = Fragments(TINY, precache(TEXTS, TINY))
    return kind(manifest, lambda arguments: fill("greeting", name=str(arguments.get("name"))), {"org/tiny": fragments})


@contextmanager
def _serving(app) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def _checked(app, calls=ASKED, models=(MODEL,), **options):
    with _serving(app) as url:
        return check_bolt_on(url + CALL_PATH, models, calls, **options)


def _outcomes(report, outcome):
    return {verdict.check for verdict in report.verdicts if verdict.outcome == outcome}


def test_a_good_bolt_on_passes_every_rule():
    report = _checked(CallApp([_tool()]))
    assert (report.kind, report.good) == ("bolt-on", True)
    assert {verdict.outcome for verdict in report.verdicts} == {"pass"}
    assert _outcomes(report, "pass") == {
        "errors are well-formed",
        "other media types are refused",
        "manifest can be read",
        "arguments have a schema",
        "answers in ids",
        "no control tokens in ids",
        "ids are those that the map gives",
        "the engines' dialect is answered",
        "wrong calls are refused",
    }


class _Breaking(CodecTool):
    """A tool whose answers are spoilt by `spoil`."""

    def answer(self, call, said):
        answer = super().answer(call, said)
        return self.spoil(answer) if answer.kind == "tokens" else answer


def _spoiling(spoil):
    return type("Spoilt", (_Breaking,), {"spoil": staticmethod(spoil)})


BROKEN = {
    "a control token": (
        lambda answer: replace(answer, response_ids=(*answer.response_ids, min(TINY.special_ids))),
        "no control tokens in ids",
    ),
    "an id that is not there": (
        lambda answer: replace(answer, response_ids=(*answer.response_ids, 99_999)),
        "ids are ids of the map",
    ),
    "another split": (
        lambda answer: replace(answer, response_ids=tuple(TINY.encode(each)[0] for each in "hello")),
        "ids are those that the map gives",
    ),
    "an error": (lambda answer: CodecToolResult.failed(answer.call_id, "no", "E_NO"), "answers in ids"),
    "another call's answer": (lambda answer: replace(answer, call_id="x"), "answers in ids"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_bolt_on_fails_by_the_rule_that_it_breaks(what):
    spoil, rule = BROKEN[what]
    report = _checked(CallApp([_tool(_spoiling(spoil))]))
    assert _outcomes(report, "fail") == {rule}


def test_an_answer_in_text_for_a_model_of_the_manifest_fails():
    tool = CodecTool(MANIFEST, lambda _arguments: "hello", {})
    report = _checked(CallApp([tool]))
    (failed,) = [each for each in report.verdicts if each.outcome == "fail"]
    assert failed.check == "answers in ids"


class _Careless(CodecTool):
    """A tool that answers whatever it is sent."""

    def arguments(self, call):
        return {"name": "x"}


def test_a_tool_that_takes_control_tokens_and_nonsense_for_arguments_fails():
    report = _checked(CallApp([_tool(_Careless)]))
    (failed,) = [each for each in report.verdicts if each.outcome == "fail"]
    assert failed.check == "wrong calls are refused"
    assert "not JSON" in failed.detail
    assert "1 more" in failed.detail


async def _anything(scope, receive, send):
    """Answer every request with 200 and an empty msgpack map."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"\x80"})


def test_a_server_that_takes_anything_fails_and_is_warned_of_browsers():
    report = _checked(_anything, {})
    assert "errors are well-formed" in _outcomes(report, "fail")
    assert "other media types are refused" in _outcomes(report, "warn")
    assert not report.good


def test_tools_are_called_only_with_arguments_that_somebody_gave():
    report = _checked(CallApp([_tool()]), {})
    (skipped,) = [each for each in report.verdicts if each.outcome == "skip"]
    assert (skipped.check, report.good) == ("is called", True)
    assert "--call" in skipped.detail


def test_without_a_map_of_its_models_a_tool_is_not_judged():
    report = _checked(CallApp([_tool()]), models=())
    assert "--map" in next(each.detail for each in report.verdicts if each.outcome == "skip")


def test_a_manifest_that_is_not_published_is_no_fault_and_the_models_name_comes_from_the_map():
    class Silent(CallApp):
        def _manifest(self, name):
            return 404, "text/plain", b"no"

    report = _checked(Silent([_tool()]))
    assert report.good
    assert _outcomes(report, "skip") == {"manifest can be read"}
    assert "answers in ids" in _outcomes(report, "pass")


def test_a_token_is_sent_and_without_it_the_check_fails():
    app = CallApp([_tool()], token="sesame")
    assert _checked(app, token="sesame").good
    assert not _checked(app).good


def test_a_server_that_is_not_there_is_unreachable(tmp_path):
    for target in ("http://127.0.0.1:9" + CALL_PATH, f"unix:{tmp_path}/none"):
        report = check_bolt_on(target, [], {})
        assert (report.kind, report.good) == ("unreachable", False)


@pytest.fixture
def folder(tmp_path):
    tool = tmp_path / "greet"
    (tool / "caches").mkdir(parents=True)
    (tool / "manifest.json").write_text(MANIFEST.to_json())
    (tool / "caches" / "tiny.json").write_text(precache(TEXTS, TINY).to_json())
    return tool


def test_a_good_folder_passes_by_itself_and_as_one_of_many(folder):
    for target in (folder, folder / "manifest.json", folder.parent):
        report = check_manifests(target, [MODEL])
        assert report.good
        assert _outcomes(report, "pass") == {
            "manifest can be read",
            "arguments have a schema",
            "precached ids are the map's",
        }


def test_a_cache_of_a_map_that_was_not_given_is_left_out(folder):
    assert _outcomes(check_manifests(folder, []), "skip") == {"precached ids are the map's"}


def test_a_cache_with_a_wrong_id_fails(folder):
    document = json.loads((folder / "caches" / "tiny.json").read_text())
    document["fragments"]["greeting"]["parts"][0]["ids"][0] += 1
    (folder / "caches" / "tiny.json").write_text(json.dumps(document))
    assert _outcomes(check_manifests(folder, [MODEL]), "fail") == {"precached ids are the map's"}


def test_a_cache_that_is_missing_or_a_link_out_of_the_folder_fails(folder, tmp_path):
    cache = folder / "caches" / "tiny.json"
    cache.rename(tmp_path / "outside.json")
    assert _outcomes(check_manifests(folder, [MODEL]), "fail") == {"precached ids are the map's"}
    cache.symlink_to(tmp_path / "outside.json")
    (failed,) = [each for each in check_manifests(folder, [MODEL]).verdicts if each.outcome == "fail"]
    assert "outside its folder" in failed.detail


@pytest.mark.parametrize(
    "schema", [{}, {"type": "string"}, {"type": "object", "required": ["x"]}, {"type": "object", "properties": []}]
)
def test_arguments_that_no_object_describes_fail(folder, schema):
    (folder / "manifest.json").write_text(replace(MANIFEST, arguments_schema=schema).to_json())
    assert _outcomes(check_manifests(folder, [MODEL]), "fail") == {"arguments have a schema"}


def test_what_is_no_manifest_fails_beside_the_good_ones(folder):
    (folder.parent / "bad.json").write_text("{")
    report = check_manifests(folder.parent, [MODEL])
    assert not report.good
    assert "precached ids are the map's" in _outcomes(report, "pass")
    assert not check_manifests(folder.parent / "bad.json", []).good


def test_a_folder_without_manifests_fails(tmp_path):
    assert not check_manifests(tmp_path, []).good
