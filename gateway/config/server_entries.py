"""Reads one server's entry, with the gateway's own keys, into an `UpstreamConfig`.

Turns the keys of `[upstreams.NAME]` into a frozen record: `${...}` is expanded, the folder made absolute, and what must
be masked collected. Mistakes that no default can mend (a command and a URL, or neither) are refused. It does not know
which file the entry came from or how others spell these keys: `config/server_files.py` translates.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from gateway.config.access import ExchangeConfig, build_exchange
from gateway.config.address import is_http_url, is_secure, is_url
from gateway.config.gateway_config import CALLBACK, TRANSPORTS, ClientCredentials, SignInConfig, UpstreamConfig
from gateway.config.overrides import build_overrides
from gateway.config.programs import check_endpoint, inherited, read_manifest_place, state_of_manifest
from gateway.config.source import Expander
from gateway.errors import ConfigError
from gateway.escape import sounds_secret

_PLAIN: Final = (
    *("start", "protocol", "sessions", "timeout", "concurrency", "queue", "idle_stop", "breaker_failures"),
    *("breaker_pause", "pin", "ids", "results", "client_sessions"),
)
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SHOWN: Final = 128
"""Characters of a wrong name that an error shows."""
_HEADER_NAME: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_OWN_HEADERS: Final = frozenset(
    (
        *("accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "cookie"),
        *("content-type", "expect", "host", "keep-alive", "last-event-id", "origin", "te", "trailer"),
        *("transfer-encoding", "upgrade", "x-codec-map"),
    )
)
"""Headers of one hop, and those with a client's credentials for the gateway."""
# A value may contain blanks if name and value are the whole argument; if they are inside a longer one, it may not.
_WHOLE_PAIR = re.compile(r"-*([\w.-]+)(?:=|:\s+)(.+)", re.DOTALL)
_INNER_PAIR = re.compile(
    r"""(?<!\w)([a-z][\w.-]*)["']?\s*[=:]\s*(?=["']?(?:(?:bearer|basic|token)\s+)?([^\s"',;&}]+))""", re.IGNORECASE
)


def check_name(name: str, separator: str, origin: str) -> None:
    """Refuse a name that can't be the prefix of a tool's public name. Raises `ConfigError`: it has other characters
    than letters, digits, `_` and `-`, or `name + separator` splits elsewhere."""
    if NAME.fullmatch(name) is None:
        raise ConfigError(f"{origin}: server name {name!r}: use 1 to 64 letters, digits, '_' and '-'")
    if (name + separator).index(separator) != len(name):
        raise ConfigError(
            f"{origin}: server name {name!r} is ambiguous before the separator {separator!r} in a public tool name: "
            "rename the server, or set another `separator`"
        )


@dataclass(frozen=True, slots=True)
class ServerReader:
    """Reads the entries of one file."""

    origin: str
    expander: Expander
    separator: str
    manifest_hosts: tuple[str, ...] = ()

    def read(self, name: str, entry: Mapping[str, Any]) -> UpstreamConfig:
        """Build the upstream that the entry (keys of `UpstreamSection`, already checked) describes. Raises
        `ConfigError`: a bad name, not just one of `command`, `url` and `manifest`, an unset variable, no such file."""
        check_name(name, self.separator, self.origin)
        where = f"{self.origin}: server {name!r}"
        command, url = entry.get("command"), entry.get("url")
        _check_kind(entry, where)
        texts = _Texts(self.expander, where)
        if entry.get("manifest"):
            return self._bolt_on(name, entry, texts)
        if url:
            headers = texts.expand_all("headers", entry.get("headers", {}))
            texts.secrets.update(value for value in headers.values() if value)
            return UpstreamConfig(
                name=name,
                url=_check_url(texts.expand("url", url), where, texts),
                headers=headers,
                client_headers=_client_headers(entry.get("client_headers", ()), headers, where),
                oauth=_credentials(texts, entry.get("oauth")),
                auth=_sign_in(texts, entry.get("auth"), headers),
                exchange=_exchange(texts, entry.get("exchange"), headers),
                secrets=frozenset(texts.secrets),
                **_policies(entry),
            )
        args = tuple(texts.expand(f"args[{i}]", arg) for i, arg in enumerate(entry.get("args", [])))
        texts.secrets.update(_secret_arguments(args))
        env = texts.expand_all("env", entry.get("env", {}))
        wanted = entry.get("inherit_env", ())
        inherit = wanted if isinstance(wanted, bool) else tuple(wanted)
        known = {**inherited(inherit, self.expander.environ), **env}
        texts.secrets.update(value for key, value in known.items() if value and sounds_secret(key))
        texts.secrets.update(*map(_passwords, known.values()))
        return UpstreamConfig(
            name=name,
            command=texts.expand("command", str(command)),
            args=args,
            env=env,
            inherit_env=inherit,
            cwd=self._folder(texts, entry.get("cwd")),
            secrets=frozenset(texts.secrets),
            **_policies(entry),
        )

    def _bolt_on(self, name: str, entry: Mapping[str, Any], texts: "_Texts") -> UpstreamConfig:
        headers = texts.expand_all("headers", entry.get("headers", {}))
        texts.secrets.update(value for value in headers.values() if value)
        given, endpoint = texts.expand("manifest", entry["manifest"]), entry.get("endpoint")
        if headers and not endpoint:
            raise ConfigError(
                f"{texts.where}: has 'headers' without 'endpoint', but headers are not sent to an address that a "
                "manifest names: set 'endpoint', or remove them"
            )
        manifest = read_manifest_place(given, self.expander.workspace, self.manifest_hosts, texts.where)
        if endpoint:
            endpoint = check_endpoint(texts.expand("endpoint", endpoint), texts.where)
        policies = _policies(entry)
        # A bolt-on does not speak MCP; the transport in front of it answers in the modern era.
        policies["protocol"] = "modern"
        return UpstreamConfig(
            name=name,
            headers=headers,
            manifest=manifest,
            endpoint=endpoint or None,
            require_match=bool(entry.get("require_match")),
            manifest_hosts=self.manifest_hosts,
            manifest_state=state_of_manifest(manifest),
            secrets=frozenset(texts.secrets),
            **policies,
        )

    def _folder(self, texts: "_Texts", given: str | None) -> Path | None:
        if not given:
            return None
        folder = self.expander.workspace / Path(texts.expand("cwd", given)).expanduser()
        if not folder.is_dir():
            raise ConfigError(
                f"{texts.where}: key 'cwd': {str(folder)!r} is not a folder: make it, or correct the path"
            )
        return folder


@dataclass(slots=True)
class _Texts:
    """Expands the texts of one entry, and collects the secrets in them."""

    expander: Expander
    where: str
    secrets: set[str] = field(default_factory=set[str])

    def expand(self, key: str, text: str) -> str:
        at = f"{self.where}: key {key!r}"
        expanded, used = self.expander.expand(text, at)
        if "\0" in expanded:
            raise ConfigError(f"{at}: contains a NUL character, which can't be passed to a program: remove it")
        self.secrets.update(used)
        return expanded

    def expand_all(self, table: str, texts: Mapping[str, str]) -> Mapping[str, str]:
        return MappingProxyType({key: self.expand(f"{table}.{key}", text) for key, text in texts.items()})


def _check_kind(entry: Mapping[str, Any], where: str) -> None:
    kinds = [key for key in ("command", "url", "manifest") if entry.get(key)]
    if len(kinds) != 1:
        both = "both " if len(kinds) == 2 else ""
        had = both + " and ".join(map(repr, kinds)) if kinds else "neither 'command' nor 'url' nor 'manifest'"
        raise ConfigError(
            f"{where}: has {had}: give 'command' for a program, 'url' for Streamable HTTP, 'manifest' for bolt-on tools"
        )
    for key in ("oauth", "auth", "exchange", "client_headers"):
        if kinds != ["url"] and entry.get(key):
            raise ConfigError(f"{where}: has {key!r}, which needs 'url', but it has {kinds[0]!r}: remove one of them")
    if entry.get("oauth") and entry.get("auth"):
        raise ConfigError(
            f"{where}: has both 'oauth' (the gateway's own credentials) and 'auth' (a person's): remove one of them"
        )
    auth: Mapping[str, object] = entry.get("auth") or {}
    if entry.get("exchange") and auth.get("per_user"):
        raise ConfigError(
            f"{where}: has both 'exchange' (callers' access tokens) and 'auth.per_user' (callers' own sign-ins): "
            "remove one of them"
        )
    for key in ("endpoint", "require_match"):
        if kinds != ["manifest"] and entry.get(key):
            raise ConfigError(
                f"{where}: has {key!r}, which needs 'manifest', but it has {kinds[0]!r}: remove one of them"
            )


def _policies(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The settings about how the server is treated: as written, with lists and tables made immutable."""
    kept: dict[str, Any] = {key: entry[key] for key in _PLAIN if key in entry}
    kept |= {key: tuple(entry[key]) for key in ("include", "exclude") if key in entry}
    return {**kept, "overrides": build_overrides(entry.get("overrides", {}))}


def _client_headers(names: Iterable[str], headers: Mapping[str, str], where: str) -> tuple[str, ...]:
    """The names of the headers that clients' requests may bring along, in lower case."""
    configured = {name.lower() for name in headers}
    found = tuple(name.lower() for name in names)
    for name in found:
        at = f"{where}: key 'client_headers': {name[:_SHOWN]!r}"
        if _HEADER_NAME.fullmatch(name) is None:
            raise ConfigError(f"{at} is no name of a header")
        if name in _OWN_HEADERS or name.startswith(("mcp-", "proxy-")):
            raise ConfigError(f"{at} can't be passed on: it belongs to the connection between client and gateway")
        if name in configured:
            raise ConfigError(f"{at} is also under 'headers', with one value for every client: remove one of them")
    return found


def _credentials(texts: "_Texts", entry: Mapping[str, str | None] | None) -> ClientCredentials | None:
    if not entry:
        return None
    values = {key: texts.expand(f"oauth.{key}", value) for key, value in entry.items() if value is not None}
    credentials = ClientCredentials(**values)
    texts.secrets.add(credentials.client_secret)
    for key, url in (("token_url", credentials.token_url), ("issuer", credentials.issuer)):
        if url is not None and not is_http_url(url):
            raise ConfigError(f"{texts.where}: key 'oauth.{key}': expected http://HOST/... or https://HOST/...")
    return credentials


def _sign_in(
    texts: "_Texts", entry: Mapping[str, str | bool | None] | None, headers: Mapping[str, str]
) -> SignInConfig | None:
    if not entry:
        return None
    values = {key: texts.expand(f"auth.{key}", value) for key, value in entry.items() if isinstance(value, str)}
    config = SignInConfig(**values, per_user=bool(entry.get("per_user")))
    if config.client_secret:
        texts.secrets.add(config.client_secret)
    _check_sign_in(config, texts.where)
    if config.per_user:
        _check_per_user(config, texts.where, headers)
    return config


def _exchange(
    texts: "_Texts", entry: Mapping[str, str | None] | None, headers: Mapping[str, str]
) -> ExchangeConfig | None:
    if not entry:
        return None
    values = {key: texts.expand(f"exchange.{key}", value) for key, value in entry.items() if value is not None}
    config = build_exchange(values, headers, texts.where)
    if config.client_secret:
        texts.secrets.add(config.client_secret)
    return config


def _check_sign_in(config: SignInConfig, where: str) -> None:
    for key, url in (("issuer", config.issuer), ("redirect_url", config.redirect_url)):
        if url is not None and not is_http_url(url):
            raise ConfigError(f"{where}: key 'auth.{key}': expected http://HOST/... or https://HOST/...")
    if not is_secure(config.redirect_url or "https://host"):
        raise ConfigError(f"{where}: key 'auth.redirect_url': expected https, or http on a loopback address")
    document = urlsplit(config.client_metadata_url or "https://host/path")
    if document.scheme != "https" or document.path in ("", "/"):
        raise ConfigError(f"{where}: key 'auth.client_metadata_url': expected https://HOST/PATH")
    if config.client_id is not None and config.issuer is None:
        raise ConfigError(
            f"{where}: has 'auth.client_id' without 'auth.issuer': name the authorization server that issued it, "
            "so that it goes to no other"
        )
    if config.client_secret is not None and config.client_id is None:
        raise ConfigError(f"{where}: has 'auth.client_secret' without 'auth.client_id': set both, or neither")


def _check_per_user(config: SignInConfig, where: str, headers: Mapping[str, str]) -> None:
    redirect = urlsplit(config.redirect_url or "")
    if not redirect.path.endswith(CALLBACK) or redirect.query or redirect.fragment:
        raise ConfigError(
            f"{where}: has 'auth.per_user', which needs 'auth.redirect_url': the address at which browsers reach this "
            f"gateway, and the path {CALLBACK}, as https://gateway.example{CALLBACK}"
        )
    if "authorization" in (name.lower() for name in headers):
        raise ConfigError(
            f"{where}: has both 'auth.per_user' and an Authorization header under 'headers', which every caller would "
            "use: remove one of them"
        )


def _check_url(url: str, where: str, texts: _Texts) -> str:
    schemes = [scheme for kind in TRANSPORTS.values() for scheme in kind.schemes]
    if not is_url(url, schemes):
        expected = " or ".join(f"{scheme}://HOST/..." for scheme in schemes)
        raise ConfigError(f"{where}: key 'url': expected {expected}, check its spelling")
    parts = urlsplit(url)
    texts.secrets.update(value for key, value in parse_qsl(parts.query) if sounds_secret(key))
    texts.secrets.update(_passwords(url))
    return url


def _passwords(url: str) -> set[str]:
    """The password in a URL, as it is written and as it is meant; none if the text has none or is no URL."""
    try:
        password = urlsplit(url).password or ""
    except ValueError:
        return set()
    return {password, unquote(password)} - {""}


def _secret_arguments(args: tuple[str, ...]) -> set[str]:
    """Values whose name sounds secret, in all the ways in which command lines name values.

    `--api-key X`, `--token=X`, `-e API_KEY=X`, `--header "X-Api-Key: X"`, and the same inside a longer argument
    (`sh -c "API_KEY=X server"`, `--config '{"apiKey": "X"}'`).
    """
    pairs = [match.groups() for match in map(_WHOLE_PAIR.fullmatch, args) if match]
    pairs += [match.groups() for arg in args for match in _INNER_PAIR.finditer(arg)]
    pairs += [(option, value) for option, value in pairwise(args) if _is_option(option) and not value.startswith("-")]
    return {value for name, value in pairs if value and sounds_secret(name)}


def _is_option(arg: str) -> bool:
    return arg.startswith("-") and "=" not in arg
