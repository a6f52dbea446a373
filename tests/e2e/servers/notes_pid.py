"""Writes its process id to the file named by NOTES, and otherwise says nothing."""

import os
from pathlib import Path

from transport import answer, serve

Path(os.environ["NOTES"]).write_text(str(os.getpid()))
serve(lambda request: answer(request, {"content": []}))
