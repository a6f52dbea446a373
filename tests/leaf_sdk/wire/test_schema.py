"""The generated module is what the schema says, and what it writes is what we write by other means."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given

import leaf_sdk.wire
from leaf_sdk.wire import Frame, ToolCall, codec_pb2

from .conftest import streams, written

FOLDER = Path(leaf_sdk.wire.__file__).parent


@pytest.mark.parametrize("name", ["codec_pb2.py", "codec_pb2.pyi"])
def test_the_generated_module_is_that_of_the_schema(tmp_path, name):
    schema = tmp_path / "leaf_sdk" / "wire" / "codec.proto"
    schema.parent.mkdir(parents=True)
    schema.write_bytes((FOLDER / "codec.proto").read_bytes())
    out = "--pyi_out" if name.endswith("i") else "--python_out"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"{out}=.", "leaf_sdk/wire/codec.proto"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    assert schema.with_name(name).read_text() == (FOLDER / name).read_text(), "run: make wire-schema"


@given(stream=streams)
def test_our_protobuf_is_what_protobuf_itself_writes(stream):
    for frame in stream:
        data = written("protobuf", [frame])
        message = codec_pb2.CodecFrame.FromString(data[4:])
        assert message.SerializeToString() == data[4:]
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        assert (tuple(message.ids), message.done) == (frame.ids, frame.done)


def test_fields_of_the_schema_have_the_numbers_that_clients_know():
    numbers = {field.name: field.number for field in codec_pb2.CodecFrame.DESCRIPTOR.fields}
    assert numbers == {
        "ids": 1,
        "done": 2,
        "finish_reason": 3,
        "tool_calls": 4,
        "x_region_ids": 1000,
        "x_spliced": 1001,
        "x_usage": 1002,
        "x_error": 1003,
        "x_seq": 1004,
        "x_prompt_ids": 1005,
    }


def test_requests_are_read_by_the_schema_as_published(vectors):
    for case in vectors("wire")["requests"]["cases"]:
        body = case["body"]
        request = codec_pb2.CodecRequest.FromString(bytes.fromhex(case["protobuf_hex"]))
        assert (list(request.prompt_ids), list(request.stop)) == (body["prompt_ids"], body["stop"])
        assert (request.max_tokens, request.stream_format) == (body["max_tokens"], body["stream_format"])
        assert request.temperature == pytest.approx(body["temperature"])


def test_a_call_without_name_or_id_leaves_them_out():
    assert written("protobuf", [Frame((), False, None, (ToolCall("{}"),))])[4:] == b"\x22\x04\x12\x02{}"
