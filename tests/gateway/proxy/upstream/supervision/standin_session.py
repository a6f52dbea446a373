"""A session with a server that is not there: it lists, answers and announces what a test says."""

import asyncio
from collections.abc import Awaitable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import anyio.lowlevel

from gateway.proxy.transport.transport_interface import PeerError
from gateway.proxy.upstream.items.item_reader import ItemReader
from gateway.proxy.upstream.session.in_flight import FirstQuestions
from gateway.proxy.upstream.supervision.listing import Listing
from gateway.proxy.upstream.supervision.session_member import SessionMember

TELLS, SILENT = {"listChanged": True}, {}
NO_SUCH = PeerError({"code": -32601, "message": "no such method"})
REFUSED = PeerError({"code": -32600, "message": "no"})


class Server:
    """A session whose server lists what it is told to."""

    server = "up"

    def __init__(self, *, modern=False, **capabilities):
        self.modern, self.capabilities = modern, capabilities
        self.transport = SimpleNamespace(closed=asyncio.Event())
        self.version = "2026-07-28" if modern else "2025-11-25"
        self.announced = frozenset()
        self.questions, self.told_roots = FirstQuestions(), False
        self.pages = {}
        self.asked, self.told, self.lent = [], [], []
        self.hear = lambda: None

    async def request(self, method, params, caller=None):
        told = (params.get(each) for each in ("cursor", "level", "uri", "notifications"))
        self.asked.append((method, next(filter(None, told), None)))
        await anyio.lowlevel.checkpoint()
        self.hear()
        page = self.pages.get(method, {})
        page = page(params.get("cursor")) if callable(page) else page
        page = await page if isinstance(page, Awaitable) else page
        if isinstance(page, Exception):
            raise page
        return page

    async def ping(self):
        await self.request("ping", {})

    async def notify(self, method, params=None):
        self.told.append(method)

    def lend(self, caller):
        self.lent.append(caller)


def tools(*names, **fields):
    return {"tools": [{"name": each, "inputSchema": {"type": "object"}} for each in names], **fields}


def named(listed):
    return [item["name"] for item in listed.items]


def listing_of(server, **settings):
    return Listing(server, settings.pop("result_bytes", 1_000_000), ItemReader("up"), **settings)


def member_of(**capabilities):
    """A session as the gateway has it, and the server."""
    server = Server(modern=capabilities.pop("modern", False), **capabilities)
    return SessionMember(server, listing_of(server)), server


class Opener:
    """Opens sessions with a server that is not there, or fails to."""

    def __init__(self, **capabilities):
        self.capabilities = capabilities
        self.fails = None
        self.may_open, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_open.set()
        self.may_end.set()
        self.pages = {"tools/list": tools("a")}
        self.asked, self.members, self.ended = [], [], []

    @asynccontextmanager
    async def opened(self, terms, owner=None, *, main=False, borrower=None):
        self.asked.append((terms, owner, main or borrower))
        await self.may_open.wait()
        if self.fails is not None:
            raise self.fails
        member, server = member_of(**self.capabilities)
        server.announced = frozenset(terms.capabilities or ())
        server.pages = {**self.pages}
        self.members.append(member)
        try:
            yield member
        finally:
            with anyio.CancelScope(shield=True):
                await self.may_end.wait()
            self.ended.append(member)
