"""The page docs/configure.md.

Turns the settings' own descriptions, types and defaults into tables, below a text that is kept here because it is about
the same code. A test compares the page with this output and loads the examples in it, so that neither can drift.
"""

import json
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gateway.config.access import AuditSection, ConsoleSection, OAuthSection, TelemetrySection, TrajectoriesSection
from gateway.config.overrides import AnnotationsSection, ApprovalsSection, OverrideSection
from gateway.config.replicas import ReplicasSection, SharedSection
from gateway.config.settings import (
    AgentSection,
    EngineSection,
    LimitsSection,
    Settings,
    TokensSection,
    UpstreamSection,
    ViewSection,
)
from gateway.config.tables import (
    ConnectionsSection,
    CredentialsSection,
    ExchangeSection,
    RegistrySection,
    ServeSection,
    SignInSection,
)
from gateway.config.wire import WireSection

_HEAD = """\
# Configure the gateway

One file is enough: the `mcpServers` JSON that Claude Desktop, Claude Code, Cursor or VS Code already has, or a
`codec-gateway.toml`. `codec-gateway check --config FILE` prints the resulting settings, with secrets masked, and
starts nothing.

## Which value wins

1. flags of the command,
2. environment variables `CODEC_GATEWAY_*`: two underscores separate a table from its key, commas the entries of a list
   (`CODEC_GATEWAY_SERVE__PORT=9000`, `CODEC_GATEWAY_SERVE__ALLOWED_HOSTS=gateway,gateway.lan`);
   `CODEC_GATEWAY_TOKEN` stands for `serve.token`, `CODEC_ADMIN_TOKEN` for `console.token`, and an empty variable
   counts as not set,
3. `codec-gateway.toml`: the file given with `--config`, or the one beside the JSON given with it, or the one in the
   current folder,
4. the default.

An unknown key in `codec-gateway.toml` or a variable is an error that names the nearest valid key. Relative paths are
resolved from the folder of the file that contains them; in flags and variables, from the current folder. `~` is your
home folder.

## Examples

The servers of an editor, with the embedded engine. Beside `.cursor/mcp.json` or in the folder you start from:

```toml
engine = "embedded"
mcp_config = ".cursor/mcp.json"
```

Servers in the same file, and a llama.cpp server that runs elsewhere:

```toml
[engine]
url = "http://127.0.0.1:8080"
api_key = "${env:LLAMA_API_KEY}"

[tokens]
map = "none"

[upstreams.time]
command = "codec-time-leaf"

[upstreams.search]
url = "https://search.example/mcp"
headers = { Authorization = "Bearer ${SEARCH_TOKEN}" }
```

Several engines, which act as one if they serve the same model ([how](pool.md)). Each has the keys of `[engine]`; the
table `[engine]` itself can't be used together with them:

```toml
[engines.desk]
url = "http://desk.lan:8080"

[engines.attic]
url = "http://attic.lan:8080"
aliases = ["small"]
```

An existing JSON, unchanged, served to other machines on the network (`codec-gateway token` shows the token that clients
must send):

```json
{
  "mcpServers": {
    "files": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "${workspaceFolder}"]
    }
  }
}
```

```toml
[serve]
host = "0.0.0.0"
allowed_hosts = ["gateway.lan"]
```

## Files of other programs

- `mcpServers` and VS Code's `servers` are read; comments and trailing commas are fine.
- `command`, `args`, `env`, `envFile`, `cwd` start a program; `url`, `headers` reach a server over HTTP, of type
  `http` or `sse`: one that refuses Streamable HTTP is asked for the older event stream. `"disabled": true` leaves a
  server out.
- `timeout` limits calls, as `upstreams.NAME.timeout` does. Up to 3600 it counts as seconds (Cline, Roo Code), above as
  milliseconds (Claude Code, Gemini CLI). Codex's `tool_timeout_sec` is always seconds.
- Unknown keys are listed in one warning per file.
- `${X}`, `${env:X}`, `${X:-default}`, `${workspaceFolder}` (the folder of the file, or the one above `.vscode`,
  `.cursor`, `.claude`), `${workspaceFolderBasename}` and `${userHome}` are replaced. `${input:github-token}` would
  ask a person, which a gateway can't do: set `CODEC_GATEWAY_INPUT_GITHUB_TOKEN`.
- A server whose entry can't be used (a variable that is not set, another transport, a folder that does not exist) is
  left out with a warning that says why; `codec-gateway check` lists them. If none is left, the gateway does not start.
- A server's name is the prefix of its tools' names. It may contain letters, digits, `_` and `-`; other characters are
  replaced by `_`, with a warning.

## Who may call

On loopback no token is needed unless you set one. Beyond loopback a token is required: `CODEC_GATEWAY_TOKEN`, or one
that is made at the first start and kept in your state folder, readable by you alone. `codec-gateway token` shows it. If
there are API keys or an OAuth issuer, every caller needs a credential, on loopback too:
[who may call](operate.md#who-may-call). The admin port (`/metrics`, `/healthz/live`, `/healthz/ready`) needs none,
except at [`/console`](console.md): keep it on loopback, or behind a firewall.
"""


def render_page() -> str:
    """Return the whole page as Markdown."""
    top = {key: info for key, info in Settings.model_fields.items() if not _is_table(info)}
    parts = [_HEAD, "\n## All settings\n", _table("At the top of the file", top)]
    for name, section in (
        ("engine", EngineSection),
        ("agent", AgentSection),
        ("tokens", TokensSection),
        ("limits", LimitsSection),
        ("serve", ServeSection),
        ("serve.oauth", OAuthSection),
        ("serve.connections", ConnectionsSection),
        ("wire", WireSection),
        ("registry", RegistrySection),
        ("approvals", ApprovalsSection),
        ("audit", AuditSection),
        ("trajectories", TrajectoriesSection),
        ("telemetry", TelemetrySection),
        ("replicas", ReplicasSection),
        ("shared", SharedSection),
        ("console", ConsoleSection),
        ("views.NAME", ViewSection),
        ("upstreams.NAME", UpstreamSection),
        ("upstreams.NAME.overrides.TOOL", OverrideSection),
        ("upstreams.NAME.overrides.TOOL.annotations", AnnotationsSection),
        ("upstreams.NAME.oauth", CredentialsSection),
        ("upstreams.NAME.auth", SignInSection),
        ("upstreams.NAME.exchange", ExchangeSection),
    ):
        summary = (section.__doc__ or "").rstrip(".")
        parts.append(_table(summary if summary.startswith(f"`[{name}") else name, dict(section.model_fields)))
    return "".join(parts)


def _table(title: str, fields: dict[str, FieldInfo]) -> str:
    rows = [
        f"| `{key}` | {_kind(info.annotation)} | {_default(info)} | {info.description} |"
        for key, info in fields.items()
        if not _is_section(info)
    ]
    return "\n".join([f"\n### {title}\n", "| key | type | default | meaning |", "|---|---|---|---|", *rows, ""])


def _is_table(info: FieldInfo) -> bool:
    return get_origin(info.annotation) is dict or _is_section(info)


def _is_section(info: FieldInfo) -> bool:
    return any(isinstance(each, type) and issubclass(each, BaseModel) for each in _alternatives(info.annotation))


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType, dict) else (annotation,)


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value: object = info.default
    return "" if value in (None, [], {}) else f"`{json.dumps(value)}`"


def _kind(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(args[0])
    if origin is Literal:
        return ", ".join(f"`{word}`" for word in args)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(arg) for arg in args if arg is not type(None))
    if origin is dict and args[1] is Any:
        return "table"
    names: dict[Any, str] = {list: "list of text", dict: "table of text", str: "text", int: "integer", float: "number"}
    return names.get(origin or annotation, "true or false")
