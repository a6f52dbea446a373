"""What the child process sets in llama.cpp, what it prints, and when it ends: with a package that only notes it."""

import io
import json
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gateway.engine.embedded import child_process

SETTINGS = {"model": "/m.gguf", "host": "127.0.0.1", "port": 8099, "context": 4096, "slots": 2, "threads": 3}


class Native(ModuleType):
    """The package `xllamacpp`."""

    def __init__(self) -> None:
        super().__init__("xllamacpp")
        self.params: Any = None
        self.fault: RuntimeError | None = None
        self.ggml_backend_dev_type = SimpleNamespace(GGML_BACKEND_DEVICE_TYPE_CPU=0)
        self.devices = [0]

    def get_device_info(self) -> list[dict[str, Any]]:
        return [{"name": f"device {number}", "type": kind} for number, kind in enumerate(self.devices)]

    def CommonParams(self) -> Any:
        threads = {"cpuparams": SimpleNamespace(), "cpuparams_batch": SimpleNamespace()}
        self.params = SimpleNamespace(model=SimpleNamespace(), chat_template="", **threads)
        return self.params

    def Server(self, params: Any) -> Any:
        assert params is self.params
        os.write(1, b"loading\n")
        if self.fault is not None:
            raise self.fault
        return SimpleNamespace(listening_address="http://127.0.0.1:8099")


class Stdin:
    """Closes when it is read to its end."""

    def __init__(self) -> None:
        self.buffer = io.BytesIO(b"nothing")

    @property
    def closed(self) -> bool:
        return self.buffer.tell() == len(b"nothing")


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Native:
    package = Native()
    monkeypatch.setitem(sys.modules, "xllamacpp", package)
    monkeypatch.delenv("CODEC_ENGINE_KEY", raising=False)
    return package


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Stdin:
    given = Stdin()
    monkeypatch.setattr(sys, "stdin", given)
    return given


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], stdin: Stdin):
    """Runs the program; gives its exit status, and what it wrote to stdout and stderr."""
    # The end of the process would close it.
    opened: list[Any] = []
    fdopen = os.fdopen

    def remember(*given: Any, **more: Any) -> Any:
        opened.append(fdopen(*given, **more))
        return opened[-1]

    def end(status: int) -> None:
        assert stdin.closed
        raise SystemExit(status)

    def go(**settings: object) -> tuple[object, str, str]:
        monkeypatch.setattr(os, "fdopen", remember)
        monkeypatch.setattr(os, "_exit", end)
        monkeypatch.setattr(sys, "argv", ["child_process", json.dumps({**SETTINGS, **settings})])
        out = os.dup(1)
        try:
            with pytest.raises(SystemExit) as ended:
                child_process.main()
        finally:
            os.dup2(out, 1)
            os.close(out)
            for file in opened:
                file.close()
        return ended.value.code, *capfd.readouterr()

    return go


def test_address_is_the_only_thing_on_stdout_and_the_process_ends_with_its_stdin(run, native: Native) -> None:
    status, out, err = run()

    assert (status, out) == (0, "http://127.0.0.1:8099\n")
    assert "loading" in err


def test_settings_become_the_server_s(run, native: Native) -> None:
    run()
    given = native.params

    assert (given.model.path, given.hostnames, given.port) == ("/m.gguf", ["127.0.0.1"], 8099)
    assert (given.n_ctx, given.n_parallel) == (4096, 2)
    assert given.cpuparams.n_threads == given.cpuparams_batch.n_threads == 3
    assert (given.warmup, given.use_jinja, given.verbosity) == (False, True, 1)
    assert given.cache_ram_mib == 0
    # What is not asked for stays as llama.cpp has it.
    others = ("api_keys", "slot_prompt_similarity", "cache_idle_slots", "slot_save_path", "n_ctx_checkpoints")
    assert not any(hasattr(given, name) for name in others)
    assert given.chat_template == ""


def test_requests_that_name_their_slot_always_ask_the_host_cache(run, native: Native) -> None:
    run(cache_mib=512, chosen=True, template="chatml")

    assert native.params.cache_ram_mib == 512
    assert native.params.slot_prompt_similarity > 1
    assert native.params.cache_idle_slots is False
    assert native.params.chat_template == "chatml"


def test_slot_files_lie_in_their_folder_and_nobody_else_can_read_them(run, native: Native) -> None:
    before = os.umask(0o022)
    try:
        run(slot_files="/dev/shm/slots")
        assert os.umask(0o022) == 0o077
        run()
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_layers_are_fitted_to_devices_only_where_there_are_others_than_the_cpu(run, native: Native) -> None:
    run()
    assert native.params.fit_params is False

    native.devices = [0, 1]
    run()
    # As llama.cpp has it.
    assert not hasattr(native.params, "fit_params")


@pytest.mark.parametrize("folder", ["/slots", "/slots/"])
def test_name_of_a_slot_file_is_put_behind_its_folder(run, native: Native, folder: str) -> None:
    before = os.umask(0o022)
    try:
        run(slot_files=folder)
    finally:
        os.umask(before)

    assert native.params.slot_save_path == "/slots/"
    assert native.params.n_ctx_checkpoints == child_process.KEPT_CHECKPOINTS
    assert native.params.checkpoint_min_step == 0


def test_key_comes_from_the_environment(run, native: Native, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEC_ENGINE_KEY", "secret")
    run()
    assert native.params.api_keys == ["secret"]


def test_package_that_can_not_be_loaded_says_why_in_place_of_the_address(run, native, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    status, out, _ = run()

    assert status == 1
    assert out.startswith("the embedded engine can't start: ")


def test_server_that_can_not_start_ends_the_process_with_the_reason(run, native: Native) -> None:
    native.fault = RuntimeError("no such model")
    status, out, err = run()

    assert (status, out) == (1, "")
    assert "no such model\n" in err
