"""Two keys side by side, in frames and compressed bodies: each gets its own ids, whatever the other sends."""

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import msgpack
import pytest

from leaf_sdk.wire import CODINGS, Decoder, Dictionary, Frame, FrameReader, open_encoder
from tests.e2e.conftest import key_for

DICTIONARY = b"a dictionary of some bytes, which need no format"
FORMS = ["msgpack", "protobuf"]
LENGTH = 20
REQUESTS = 40


def packed(coding: Any, data: bytes) -> bytes:
    encoder = open_encoder(coding)
    return encoder.write(data) + encoder.close()


@dataclass
class Holder:
    """One key, whose model can write one id alone, so that an id of another's answer is known wherever it comes."""

    url: str
    key: str
    prompt: list[int]
    writes: int

    def headers(self, sent: str, wanted: str, kind: str = "application/json") -> dict[str, str]:
        return {
            "authorization": f"Bearer {self.key}",
            "content-type": kind,
            "content-encoding": sent,
            "accept-encoding": wanted,
            "codec-client-version": "0.5",
        }

    def body(self, form: str, flush: str) -> dict[str, Any]:
        told = {"return_token_ids": True, "stream_format": form, "stream_flush": flush, "max_tokens": LENGTH}
        return {"prompt": self.prompt, "prompt_ids": self.prompt, "logit_bias": {str(self.writes): 100}, **told}

    def asked(self, client: httpx2.Client, draw: random.Random) -> tuple[str, Any]:
        """A request of some coding, and the form of its answer."""
        form = draw.choice(FORMS)
        body = self.body(form, draw.choice(["interactive", "batch", "at_once"]))
        sent, wanted = draw.choice(CODINGS), draw.choice(CODINGS)
        if draw.random() < 0.5:
            data, path, kind = json.dumps(body).encode(), "/v1/completions", "application/json"
        else:
            data, path, kind = msgpack.packb(body), "/v1/completions/codec", "application/x-msgpack"
        headers = self.headers(sent, wanted, kind)
        return form, client.stream("POST", self.url + path, content=packed(sent, data), headers=headers)

    def answered(self, client: httpx2.Client, draw: random.Random) -> None:
        form, asked = self.asked(client, draw)
        with asked as response:
            assert response.status_code == 200, response.read()
            frames = read(form, response.headers.get("content-encoding", "identity"), response.iter_raw())
        assert frames[0].extras.prompt_ids == tuple(self.prompt)
        written = [i for frame in frames for i in frame.ids]
        assert written == [self.writes] * LENGTH
        assert (frames[-1].finish_reason, frames[-1].extras.usage.completion_tokens) == ("length", LENGTH)

    def leaves(self, client: httpx2.Client, draw: random.Random) -> None:
        _, asked = self.asked(client, draw)
        with asked as response:
            assert response.status_code == 200
            next(response.iter_raw())

    def harms(self, client: httpx2.Client, draw: random.Random) -> None:
        """A body that is none."""
        coding = draw.choice([each for each in CODINGS if each != "identity"])
        whole = packed(coding, json.dumps(self.body("msgpack", "batch")).encode())
        data, status = draw.choice(
            [
                (packed(coding, bytes(64 * 2**20)), 413),
                (packed(coding, b'{"prompt": [' + b"[]," * 1_300_000 + b"[]]}"), 400),
                (whole[:-3], 400),
                (whole + b"more", 400),
                (whole + whole, 400),
                (b"\x00" + whole, 400),
            ]
        )
        path = draw.choice(["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/tokenize"])
        answer = client.post(self.url + path, content=data, headers=self.headers(coding, "identity"))
        assert answer.status_code == status, (path, coding, len(data), answer.text)


def read(form: Any, coding: Any, pieces: Iterator[bytes]) -> list[Frame]:
    decoder = Decoder(coding, dictionary=Dictionary(DICTIONARY) if coding == "zstd" else None)
    reader = FrameReader(form)
    frames = [frame for piece in pieces for frame in reader.feed(decoder.feed(piece))]
    decoder.close()
    reader.close()
    return frames


@pytest.fixture
def gateway(start_gateway, tmp_path):
    dictionary = tmp_path / "words.zstd"
    dictionary.write_bytes(DICTIONARY)
    wire = f'[wire]\ndictionary_msgpack = "{dictionary}"\ndictionary_protobuf = "{dictionary}"\n'
    (tmp_path / "codec-gateway.toml").write_text(wire)
    ada, eve = (key_for(tmp_path, name) for name in ("ada", "eve"))
    started = start_gateway({}, "--engine", "embedded")
    return started, Holder(started.url, ada, [504, 1520, 3575], 260), Holder(started.url, eve, [1209, 6330], 339)


def test_each_key_gets_its_own_ids_among_requests_that_leave_and_bodies_that_are_none(gateway):
    started, ada, eve = gateway

    def ask(number: int) -> None:
        draw = random.Random(number)
        who = draw.choice([ada, eve])
        what = draw.choices([who.answered, who.leaves, who.harms], [6, 2, 2])[0]
        with httpx2.Client(timeout=240) as client:
            what(client, draw)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(REQUESTS)))

    with httpx2.Client(timeout=240) as client:
        for who in (ada, eve):
            who.answered(client, random.Random(0))
    assert resident(started.process.pid) < 600 * 2**20


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096
