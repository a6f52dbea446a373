"""Leaves when its input ends, and leaves its own child behind; the child holds no pipe of ours."""

import os
import subprocess
import sys

from transport import answer, note, serve

ignoring = "signal.signal(signal.SIGTERM, signal.SIG_IGN);" if "ignores-term" in sys.argv else ""
child = subprocess.Popen(
    [sys.executable, "-c", f"import signal; {ignoring} print(flush=True); signal.pause()"],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
)
child.stdout.readline()
note(f"pid {os.getpid()}")
note(f"pid {child.pid}")
serve(lambda request: answer(request, {"content": []}))
