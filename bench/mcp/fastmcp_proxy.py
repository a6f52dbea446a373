"""fastmcp's own proxy, as its documentation says to make one: `fastmcp_proxy.py CONFIG [PORT]`, run by its own Python.

The one file here that belongs to another program's environment; it imports nothing of ours. `peers.py` starts it.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    proxy: Any = import_module("fastmcp.server").create_proxy(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    if len(sys.argv) > 2:
        proxy.run(transport="http", port=int(sys.argv[2]), show_banner=False, log_level="WARNING")
    else:
        proxy.run(transport="stdio", show_banner=False, log_level="WARNING")
