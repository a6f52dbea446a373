"""Answers honestly, but neither the end of its input nor TERM makes it leave; nor its own child."""

import os
import signal
import subprocess
import sys

from transport import answer, note, serve

signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
note(f"pid {os.getpid()}")
note(f"pid {child.pid}")
serve(lambda request: answer(request, {"content": []}))
signal.pause()
