"""A real Keycloak with one realm, in which tokens can be exchanged: `python -m tests.oauth.keycloak` fetches it.

It needs Java and Maven; without them nothing is fetched, and `make oauth-check` says that it did not try exchanges.
"""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2

VERSION = "26.7.3"
SHA256 = "27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f"
TOOLS = Path(__file__).parents[2] / ".tools" / "oauth"
HOME = TOOLS / f"keycloak-{VERSION}"
SECRETS = {name: f"{name}-secret-of-this-test" for name in ("gateway", "stranger", "docs")}
LIFE = 6
"""Seconds that an exchanged token lives."""
BRIEF = 3
"""Seconds that a token of the client `brief` lives."""
PEOPLE = ("ann", "bob", "cleo", "dora", "eve")
_START = 400.0


def install() -> str | None:
    """Fetch and build it, unless that was done before. Return why it can't be."""
    missing = [each for each in ("java", "mvn") if shutil.which(each) is None]
    if missing:
        return f"left out Keycloak, which needs {' and '.join(missing)}"
    if (HOME / "built").exists():
        return None
    artifact, store = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip", TOOLS / "maven"
    command = ["mvn", "-q", "-B", "dependency:get", "-Dtransitive=false", f"-Dartifact={artifact}"]
    subprocess.run([*command, f"-Dmaven.repo.local={store}"], check=True)
    (archive,) = store.rglob(f"keycloak-quarkus-dist-{VERSION}.zip")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise SystemExit("this is not the Keycloak that was asked for")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(TOOLS)
    shutil.rmtree(store)
    script = HOME / "bin" / "kc.sh"
    script.chmod(0o755)
    subprocess.run([str(script), "build", "--db=dev-mem", "--cache=local"], check=True, stdout=subprocess.DEVNULL)
    (HOME / "built").touch()
    return None


def is_there() -> bool:
    return shutil.which("java") is not None and (HOME / "built").exists()


@dataclass
class Keycloak:
    origin: str
    process: asyncio.subprocess.Process

    @property
    def issuer(self) -> str:
        return self.issuer_of("test")

    @property
    def keys(self) -> str:
        return f"{self.issuer}/protocol/openid-connect/certs"

    def issuer_of(self, realm: str) -> str:
        return f"{self.origin}/realms/{realm}"

    async def sign_in(self, person: str, client: str = "agent", realm: str = "test", **more: str) -> dict[str, Any]:
        """The tokens of a person in a client of theirs."""
        form = {"grant_type": "password", "client_id": client, "username": person, "password": person, **more}
        return await self.ask("token", form, realm)

    async def refresh(self, tokens: dict[str, Any]) -> dict[str, Any]:
        form = {"grant_type": "refresh_token", "client_id": "agent", "refresh_token": tokens["refresh_token"]}
        return await self.ask("token", form)

    async def exchange(self, subject: str, client: str = "gateway", **more: str) -> dict[str, Any]:
        kinds = "urn:ietf:params:oauth:token-type:access_token"
        grant = "urn:ietf:params:oauth:grant-type:token-exchange"
        form = {"grant_type": grant, "subject_token": subject, "subject_token_type": kinds, "client_id": client}
        return await self.ask("token", {**form, "client_secret": SECRETS[client], **more})

    async def end(self, tokens: dict[str, Any]) -> None:
        """End the session that the tokens came from."""
        await self.ask("logout", {"client_id": "agent", "refresh_token": tokens["refresh_token"]})

    async def ask(self, endpoint: str, form: dict[str, str], realm: str = "test") -> dict[str, Any]:
        async with httpx2.AsyncClient(timeout=60) as http:
            answer = await http.post(f"{self.issuer_of(realm)}/protocol/openid-connect/{endpoint}", data=form)
        return answer.json() if answer.content else {}


@asynccontextmanager
async def keycloak(port: int, log: Path) -> AsyncGenerator[Keycloak]:
    """Run it, without anything of an earlier run."""
    folder = HOME / "data" / "import"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("test", "other"):
        (folder / f"{name}-realm.json").write_text(json.dumps(_realm(name)))
    origin = f"http://127.0.0.1:{port}"
    command = [str(HOME / "bin" / "kc.sh"), "start", "--optimized", "--import-realm", "--http-enabled=true"]
    command += [f"--hostname={origin}", "--http-host=127.0.0.1", f"--http-port={port}"]
    environ = {**os.environ, "JAVA_OPTS_KC_HEAP": "-Xms64m -Xmx512m"}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output, env=environ)
    made = Keycloak(origin, process)
    try:
        with anyio.fail_after(_START):
            while not await _answers(made):
                if process.returncode is not None:
                    raise RuntimeError(f"Keycloak ended at its start:\n{_end_of(log)}")
                await anyio.sleep(1)
        yield made
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _end_of(log: Path) -> str:
    return log.read_text()[-4000:]


async def _answers(made: Keycloak) -> bool:
    try:
        async with httpx2.AsyncClient(timeout=20) as http:
            return (await http.get(made.keys)).status_code == 200
    except httpx2.TransportError:
        return False


def _realm(name: str) -> dict[str, Any]:
    exchanges = {"standard.token.exchange.enabled": "true", "access.token.lifespan": str(LIFE)}
    scopes = ["basic", "mcp:server:*"]
    return {
        "realm": name,
        "enabled": True,
        "sslRequired": "none",
        "accessTokenLifespan": 300,
        "clientScopes": [
            {**_scope("basic", _mapper("sub", "oidc-sub-mapper")), "attributes": {"include.in.token.scope": "false"}},
            _scope("mcp:server:*", _audience("gateway")),
            _scope("docs", _audience("docs")),
        ],
        "clients": [
            _client("agent", scopes, directAccessGrantsEnabled=True),
            _client("brief", scopes, directAccessGrantsEnabled=True, attributes={"access.token.lifespan": str(BRIEF)}),
            _client("gateway", ["basic"], ["docs"], attributes=exchanges),
            _client("stranger", ["basic"], ["docs"], attributes=exchanges),
            _client("docs", ["basic"]),
        ],
        # Their names are their subjects; ids are unique in all realms.
        "users": [_user(each, {"id": each} if name == "test" else {}) for each in PEOPLE],
    }


def _client(name: str, scopes: list[str], optional: list[str] | None = None, **more: Any) -> dict[str, Any]:
    secret = {"secret": SECRETS[name]} if name in SECRETS else {"publicClient": True}
    given = {"defaultClientScopes": scopes, "optionalClientScopes": optional or [], "standardFlowEnabled": False}
    return {"clientId": name, "protocol": "openid-connect", "enabled": True, **secret, **given, **more}


def _scope(name: str, mapper: dict[str, Any]) -> dict[str, Any]:
    shown = {"include.in.token.scope": "true"}
    return {"name": name, "protocol": "openid-connect", "attributes": shown, "protocolMappers": [mapper]}


def _audience(client: str) -> dict[str, Any]:
    return _mapper(client, "oidc-audience-mapper", {"included.client.audience": client})


def _mapper(name: str, kind: str, settings: dict[str, str] | None = None) -> dict[str, Any]:
    config = {"access.token.claim": "true", **(settings or {})}
    return {"name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config}


def _user(name: str, more: dict[str, str]) -> dict[str, Any]:
    names = {"username": name, "firstName": name, "lastName": name, "email": f"{name}@people.example"}
    password = {"type": "password", "value": name, "temporary": False}
    return {**more, **names, "emailVerified": True, "enabled": True, "credentials": [password]}


if __name__ == "__main__":
    sys.stderr.write(f"{install() or 'Keycloak is there'}\n")
