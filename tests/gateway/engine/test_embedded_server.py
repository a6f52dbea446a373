"""What an embedded server is started with, when it counts as started, and why it ended: by a scripted child."""

import json
import logging
import os
import sys
from pathlib import Path

import pytest

from gateway.config import EngineConfig
from gateway.engine.embedded import engine_process as embedded
from gateway.engine.embedded.engine_process import (
    Listening,
    divided,
    embedded_model,
    embedded_server,
    slot_files_limit,
    sound_model,
    threads_of,
)
from gateway.errors import ConfigError, EngineUnavailable, ModelUnusable
from leaf_sdk.testing.gguf import gguf_model

pytestmark = pytest.mark.anyio

URL = "http://127.0.0.1:8099"
STAYS = f"echo {URL}; exec cat"
"""Listens, and lives until its stdin closes."""
MODEL = {
    "general.architecture": "llama",
    "llama.context_length": 4096,
    "tokenizer.chat_template": "{{ messages }}",
    "tokenizer.ggml.tokens": ["a"],
}


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Has the child process do what a shell script says; gives a function that makes it, and the engine's settings."""

    def make(does: str = STAYS, **settings: object) -> EngineConfig:
        program = tmp_path / "python"
        keeps = f'printf "%s\\n" "$@" > {tmp_path}/asked; printf "%s" "$CODEC_ENGINE_KEY" > {tmp_path}/key'
        program.write_text(f"#!/bin/sh\n{keeps}\n{does}\n")
        program.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(program))
        monkeypatch.setattr(embedded, "_REST_TIME", 60.0)
        model = tmp_path / "m.gguf"
        if not model.exists():
            model.write_bytes(gguf_model(MODEL))
        return EngineConfig(**{"kind": "embedded", "model": model, "start_timeout": 60.0, **settings})

    return make


def asked(folder: Path) -> dict[str, object]:
    """The settings that the child was given."""
    module, settings = (folder / "asked").read_text().splitlines()[1:3]
    assert module == "gateway.engine.embedded.child_process"
    return json.loads(settings)


def logged(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    ours = (each for each in caplog.records if each.name == "engine.embedded")
    return [str(record.msg) for record in ours if record.levelno == level]


async def test_child_that_says_its_address_is_used_until_the_context_ends(child, tmp_path: Path) -> None:
    async with embedded_server(child()) as server:
        assert server.url == URL
        assert server.is_running
        assert os.getsid(server.pid) == server.pid != os.getsid(0)

    assert not server.is_running
    assert server.key == (tmp_path / "key").read_text()
    assert len(server.key or "") >= 32
    assert server.key not in (tmp_path / "asked").read_text()


async def test_key_is_another_at_each_start_and_none_where_the_settings_say_so(child, tmp_path: Path) -> None:
    assert Listening().key != Listening().key
    async with embedded_server(child(), Listening(key=None)) as server:
        assert server.key is None
        assert (tmp_path / "key").read_text() == ""


async def test_child_that_prints_its_address_in_pieces_is_read_to_the_end_of_the_line(child) -> None:
    does = "printf 'http://127.0.0.1'; sleep 0.05; printf ':8099\\nmore'; exec cat"
    async with embedded_server(child(does)) as server:
        assert server.url == URL


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({}, {"host": "127.0.0.1", "port": 0, "context": 8192, "slots": 2, "cache_mib": 1000, "chosen": True}),
        ({"context": 512, "slots": 1, "threads": 3}, {"context": 512, "slots": 1, "threads": 3}),
        ({"cache_mib": 7}, {"cache_mib": 7}),
        ({"cache_mib": 0}, {"cache_mib": 0}),
        ({"cache_mib": 7, "isolate": True}, {"cache_mib": 0}),
        ({"chat_template": "chatml"}, {"template": "chatml"}),
    ],
)
async def test_child_is_given_the_settings(child, tmp_path: Path, monkeypatch, settings, given) -> None:
    monkeypatch.setattr(embedded, "usable_mib", lambda: 4000)
    async with embedded_server(child(**settings)):
        told = asked(tmp_path)

    assert told["model"] == str(tmp_path / "m.gguf")
    assert told | given == told
    assert "slot_files" not in told
    assert ("template" in told) == ("chat_template" in settings)


async def test_child_with_slot_files_has_no_host_cache(child, tmp_path: Path) -> None:
    async with embedded_server(child(cache_mib=7), slot_files=tmp_path):
        told = asked(tmp_path)

    assert (told["slot_files"], told["cache_mib"]) == (str(tmp_path), 0)


@pytest.mark.parametrize("exclusive", [True, False])
async def test_child_that_others_may_ask_chooses_its_slots_unless_one_gateway_has_it_alone(
    child, tmp_path: Path, *, exclusive: bool
) -> None:
    async with embedded_server(child(exclusive=exclusive), Listening("::1", 8081)):
        told = asked(tmp_path)

    assert (told["host"], told["port"], told["chosen"]) == ("::1", 8081, exclusive)


async def test_chat_template_of_a_file_is_given_as_its_text(child, tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text("{{ é }}", encoding="utf-8")
    async with embedded_server(child(chat_template=str(path))):
        assert asked(tmp_path)["template"] == "{{ é }}"

    with pytest.raises(ConfigError, match=r"engine\.chat_template '.*gone' can't be read"):
        async with embedded_server(child(chat_template=str(tmp_path / "gone"))):
            pass


async def test_context_that_the_model_was_not_trained_on_is_warned_of(child, caplog) -> None:
    async with embedded_server(child(context=8192, slots=2)):
        assert logged(caplog) == []
    async with embedded_server(child(context=8194, slots=2)):
        (warning,) = logged(caplog)

    assert "a context of 4096 tokens: each slot gets that, not 4097 (engine.context 8194 / engine.slots 2)" in warning


async def test_model_that_does_not_say_its_context_is_not_warned_of(child, caplog, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf_model({**MODEL, "llama.context_length": "long"}))
    async with embedded_server(child()):
        assert logged(caplog) == []


async def test_model_without_a_template_is_warned_of_unless_the_settings_name_one(child, caplog, tmp_path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf_model({**MODEL, "tokenizer.chat_template": 1}))
    async with embedded_server(child(chat_template="chatml")):
        assert logged(caplog) == []
    async with embedded_server(child()):
        (warning,) = logged(caplog)

    assert "has no chat template" in warning
    assert "m.gguf" in warning


@pytest.mark.parametrize(
    ("does", "kind", "words"),
    [
        ('echo "the embedded engine can\'t start: no libgomp"', ConfigError, "^the embedded engine can't start"),
        (
            "echo \"llama_model_load: error loading model: unknown model architecture: 'x'\" >&2; exit 1",
            ModelUnusable,
            "llama.cpp can't load 'm.gguf': llama_model_load: .*unknown model architecture: 'x'",
        ),
        (
            "echo 'failed to allocate 9 bytes' >&2; exit 1",
            EngineUnavailable,
            r"ran out of memory while it was starting \(failed to allocate 9 bytes\): 'm.gguf' with this context",
        ),
        ("kill -SEGV $$", EngineUnavailable, r"killed by signal 11 \(SIGSEGV\) while it was starting: if"),
        ("echo '  blank' >&2; exit 3", EngineUnavailable, "exit status 3 while it was starting and gave no reason"),
        ("echo why >&2; echo >&2; exit 0", EngineUnavailable, "exit status 0 while it was starting: why$"),
        ('echo "couldn\'t bind" >&2; exit 1', EngineUnavailable, "can't listen on its port "),
    ],
)
async def test_child_that_does_not_start_is_told_with_its_reason(child, does, kind, words) -> None:
    with pytest.raises((EngineUnavailable, ConfigError), match=words) as raised:
        async with embedded_server(child(does)):
            pytest.fail("it is not to be used")

    assert type(raised.value) is kind


async def test_address_that_is_taken_is_named(child) -> None:
    with pytest.raises(EngineUnavailable, match=r"can't listen on 127\.0\.0\.1:8081 \(address already in use\)"):
        async with embedded_server(child("echo 'address already in use' >&2; exit 1"), Listening(port=8081)):
            pass


async def test_child_that_needs_more_memory_than_is_free_is_told_both(child, monkeypatch) -> None:
    monkeypatch.setattr(embedded, "usable_mib", lambda: 3000)
    with pytest.raises(EngineUnavailable, match=r"needs about .*, 3\.1 GB are free; take a smaller model"):
        async with embedded_server(child("echo bad_alloc >&2; exit 1")):
            pass


async def test_child_that_does_not_load_its_model_in_time_is_ended(child, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"did not load 'm\.gguf' within 0\.5 s: raise engine\.start_timeout"):
        async with embedded_server(child(f"echo $$ > {tmp_path}/pid; exec cat", start_timeout=0.5)):
            pass

    # On a busy machine it may not even have begun.
    if pid := (tmp_path / "pid").read_text().strip() if (tmp_path / "pid").exists() else "":
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


async def test_end_of_a_running_child_is_told_with_the_last_that_it_wrote(child, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    async with embedded_server(child(f"echo {URL}; printf 'first\\n\\n\\377 l%01200d\\nlast' 1 >&2; exit 4")) as server:
        why = await server.ended()

    assert why == "the embedded engine ended with exit status 4: last"
    told = logged(caplog, logging.DEBUG)
    assert len(told) == 3
    assert "'line': 'first'" in told[0]
    assert f"'line': '\ufffd l{'0' * 997}'" in told[1]
    assert "'line': 'last'" in told[2]


async def test_last_words_of_a_chatty_child_are_kept_and_the_first_forgotten(child) -> None:
    writes = "echo failed to allocate; for n in $(seq 200); do echo $n; done"
    async with embedded_server(child(f"echo {URL}; {{ {writes}; }} >&2; exit 4")) as server:
        assert await server.ended() == "the embedded engine ended with exit status 4: 200"


def test_threads_are_one_less_than_cores_unless_they_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    for cores in (8, 2, 1, None):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        threads.append(threads_of(EngineConfig()))

    assert threads == [7, 1, 1, 1]
    assert threads_of(EngineConfig(threads=5)) == 5


def test_several_engines_share_what_each_would_take_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(embedded, "usable_mib", lambda: 8000)
    alone = EngineConfig(kind="embedded")
    each = divided(alone, 2)

    assert divided(alone, 1) is alone
    assert (each.threads, each.cache_mib, each.slot_files_bytes) == (3, 1000, 1000 * 1024 * 1024)
    assert divided(alone, 99).threads == 1
    own = EngineConfig(kind="embedded", threads=5, cache_mib=0, slot_files_bytes=9)
    assert divided(own, 2) == own
    elsewhere = EngineConfig(kind="url", url=URL)
    assert divided(elsewhere, 2) is elsewhere


def test_slot_files_take_what_a_host_cache_would_even_where_principals_are_kept_apart(monkeypatch) -> None:
    monkeypatch.setattr(embedded, "usable_mib", lambda: 400)
    assert slot_files_limit(EngineConfig(isolate=True)) == 100 * 1024 * 1024
    assert slot_files_limit(EngineConfig(slot_files_bytes=0)) == 0
    monkeypatch.setattr(embedded, "usable_mib", lambda: 400_000)
    assert slot_files_limit(EngineConfig()) == 8192 * 1024 * 1024


async def test_model_is_looked_at_before_a_server_is_started(child, tmp_path: Path, monkeypatch) -> None:
    model, facts = await sound_model(child())
    assert (model, facts.trained_context) == (tmp_path / "m.gguf", 4096)
    assert embedded_model(child()) == model

    gone = EngineConfig(model=tmp_path / "gone.gguf")
    with pytest.raises(ModelUnusable, match="does not exist"):
        await sound_model(gone)
    with pytest.raises(ConfigError, match=r"engine\.model '.*gone.gguf' is not a file"):
        embedded_model(gone)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs the package xllamacpp; install it with: pip install"):
        await sound_model(child())
