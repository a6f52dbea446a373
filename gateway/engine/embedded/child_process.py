"""The program of the child process in which the embedded llama.cpp server runs.

`python -m gateway.engine.embedded.child_process SETTINGS` starts the server that the package `xllamacpp` carries,
prints one line with its address on stdout, and ends when its stdin closes, so that it never outlives the gateway. If
the package can't be loaded here, the line says why instead, and what this system lacks; without settings the program
only says whether it can be loaded. A crash of the native code takes down this process only.
"""

import importlib
import json
import os
import re
import sys
from typing import Any, Final

PACKAGE: Final = "xllamacpp"
UNUSABLE: Final = "the embedded engine can't start: "
"""What every refusal begins with."""
_MISSING: Final = re.compile(r"^(\S+\.so\S*): cannot open shared object file")
_COMMANDS: Final = {
    "libgomp.so.1": "`apt-get install libgomp1` (Debian, Ubuntu), `dnf install libgomp` (Fedora)",
}
KEPT_CHECKPOINTS: Final = 2
"""Of a cache that can't be cut anywhere: those that the last prompt leaves. A conversation comes back to its end, or to
its last question, and each checkpoint more makes every slot file larger."""


def load() -> Any:
    """Import the package. Raises `ImportError` whose text says what to do."""
    try:
        # By name, since the package has no types, and only here, since it is slow to import.
        return importlib.import_module(PACKAGE)
    except ImportError as error:
        raise ImportError(UNUSABLE + _reason(str(error))) from error


def _reason(text: str) -> str:
    found = _MISSING.match(text)
    if found is None:
        return f"this system can't load llama.cpp (the package {PACKAGE}): {text}"
    library = found[1]
    install = _COMMANDS.get(library)
    return f"{library!r} is not installed: " + (install or "install the package of this system that has it")


def main() -> None:
    """Serve until stdin closes.

    Settings are given as one JSON argument: host, port (0: a free one), model, context, slots, threads; cache_mib, the
    size of the host cache (0, the default: none); chosen, whether each request names its slot; slot_files, the
    directory in which slots may be saved; template, a chat template instead of the model's own. A key that clients must
    send is given in CODEC_ENGINE_KEY, since everybody can see the arguments of a process.
    """
    settings = json.loads(sys.argv[1])
    # The native code logs to fd 1 and 2, so the line with the address gets a copy of stdout.
    address = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        native = load()
    except ImportError as error:
        print(error, file=address, flush=True)
        sys.exit(1)
    params = _parameters(native, settings)
    try:
        server = native.Server(params)
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        # Not at once: llama.cpp writes its log in a thread.
        sys.exit(1)
    print(server.listening_address, file=address, flush=True)
    sys.stdin.buffer.read()
    # The native server joins threads that may be generating; the parent does not wait for that.
    os._exit(0)


def _parameters(native: Any, settings: dict[str, Any]) -> Any:
    """llama.cpp's parameters for these settings."""
    params = native.CommonParams()
    params.model.path = settings["model"]
    params.hostnames = [settings["host"]]
    # Anybody on this machine, and any page in a browser, can reach the port; only the gateway has the key.
    if key := os.environ.get("CODEC_ENGINE_KEY"):
        params.api_keys = [key]
    params.port = settings["port"]
    params.n_ctx = settings["context"]
    params.n_parallel = settings["slots"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.warmup = False
    if _has_only_cpu(native):
        # With a set context, fitting only moves layers off other devices; for that, the vocabulary is loaded twice.
        params.fit_params = False
    # Errors only; the parent finds the reason in them when the server does not come up.
    params.verbosity = 1
    params.use_jinja = True
    params.cache_ram_mib = settings.get("cache_mib", 0)
    if settings.get("chosen", False):
        # Above 1, no slot ever counts as similar, so the cache is consulted for every request. Otherwise it is skipped
        # if two conversations share half of their ids, as all do that begin with the same long preamble.
        params.slot_prompt_similarity = 2.0
        # What a slot holds is saved when another conversation takes it. Saving idle slots too would gain nothing.
        params.cache_idle_slots = False
    if directory := settings.get("slot_files"):
        # The server concatenates path and name, and creates files with the mode that the umask leaves.
        params.slot_save_path = directory.rstrip("/") + "/"
        params.n_ctx_checkpoints, params.checkpoint_min_step = KEPT_CHECKPOINTS, 0
        os.umask(0o077)
    if template := settings.get("template"):
        params.chat_template = template
    return params


def _has_only_cpu(native: Any) -> bool:
    """Whether llama.cpp finds no GPU or other accelerator here."""
    cpu = native.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU
    return all(device["type"] == cpu for device in native.get_device_info())


def check() -> int:
    """Say whether it can be loaded; 3, the exit code for a configuration that can't work, if not."""
    try:
        load()
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    sys.stdout.write("the embedded engine can start\n")
    return 0


if __name__ == "__main__":
    sys.exit(main() if sys.argv[1:] else check())
