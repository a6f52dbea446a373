"""The sentence for an embedded engine that ended: the reason that it gave, and memory where that can be the reason."""

import signal

import pytest

from gateway.engine.embedded.engine_process import Started, is_about_model, why_ended

SMALL = Started("m.gguf", memory=300_000_000, free=20_000_000_000)
LARGE = Started("m.gguf", memory=30_000_000_000, free=20_000_000_000)


def test_engine_that_was_killed_lacked_memory_only_if_it_needs_more_than_is_free() -> None:
    assert "somebody ended it" in why_ended(-signal.SIGKILL, [], SMALL, was_ready=True)
    assert "probably for lack of memory" in why_ended(-signal.SIGKILL, [], LARGE, was_ready=True)
    assert "needs about" not in why_ended(-signal.SIGKILL, [], Started("m.gguf"), was_ready=True)
    assert "lack of memory: 'm.gguf' with this context needs about 30.0 GB, 20.0 GB are free; take" in why_ended(
        -signal.SIGKILL, [], LARGE, was_ready=True
    )
    assert "lack of memory ('m.gguf' with this context needs about 300 MB, 20.0 GB are free)" in why_ended(
        -signal.SIGKILL, [], SMALL, was_ready=True
    )


def test_signal_is_named_if_it_has_a_name() -> None:
    assert "was killed by signal 11 (SIGSEGV): if nobody sent it" in why_ended(-11, ["x"], SMALL, was_ready=True)
    assert "was killed by signal 99 while it was starting: if" in why_ended(-99, [], SMALL, was_ready=False)


def test_engine_that_ended_by_itself_is_told_with_its_status_and_its_last_words() -> None:
    lines = ["OSError: no such library", "noise", "Traceback", "  indented", ""]
    assert why_ended(0, lines[1:], SMALL, was_ready=True).endswith("ended with exit status 0: noise")
    # Python says first what is missing.
    assert why_ended(1, lines, SMALL, was_ready=False).endswith("while it was starting: OSError: no such library")
    assert why_ended(1, ["0.01 I srv  main: " + "x" * 999], SMALL, was_ready=True).count("x") < 220


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ggml_backend_cpu_buffer: failed to allocate buffer of size 99", "ran out of memory"),
        ("srv start: couldn't bind HTTP server socket", "can't listen on 127.0.0.1:1"),
        ("llama_model_load: error loading model: unknown model architecture: 'x\x1b[2J'", "can't load 'm.gguf'"),
    ],
)
def test_line_that_tells_most_is_quoted_without_control_characters(line: str, words: str) -> None:
    started = Started("m.gguf", address="127.0.0.1:1")
    said = why_ended(1, ["loading", line, "exiting due to an error"], started, was_ready=False)

    assert words in said
    assert "while it was starting" in said or "can't" in said
    assert "\x1b" not in said
    assert is_about_model([line]) == ("architecture" in line)


def test_engine_that_gave_no_reason_is_said_to_have_given_none() -> None:
    assert why_ended(3, ["", "  at x"], SMALL, was_ready=True).endswith("status 3 and gave no reason")
