"""Pages of other packages on the admin port: found by their entry points, and mounted in front of its own."""

from importlib.metadata import EntryPoint
from typing import ClassVar

import httpx2
import pytest
from starlette.responses import PlainTextResponse

from gateway.serve.admin import extra_pages
from gateway.serve.admin.extra_pages import WithExtraPages, extra_page_paths, make_extra_pages

pytestmark = pytest.mark.anyio


class Pages:
    """Pages as a package would bring them."""

    DESCRIPTION: ClassVar[str] = "pages of a test"

    def __init__(self, parts: object) -> None:
        self.parts = parts

    def start_url(self, admin: str) -> str | None:
        return f"{admin}/pages"

    async def __call__(self, scope, receive, send) -> None:
        await PlainTextResponse(f"pages at {scope['path']}")(scope, receive, send)


class Broken(Pages):
    def __init__(self, parts: object) -> None:
        raise RuntimeError("a package that fails")


@pytest.fixture
def installed(monkeypatch):
    """Makes these the entry points that are installed, by name."""

    def install(**values: str) -> None:
        points = [EntryPoint(name, value, "codec_gateway.admin_pages") for name, value in values.items()]
        monkeypatch.setattr(extra_pages, "entry_points", lambda group: points)

    return install


async def test_pages_are_made_with_the_gateways_parts_by_their_path(installed):
    installed(pages=f"{__name__}:Pages")

    made = make_extra_pages(parts := object())

    assert (list(made), made["/pages"].parts) == (["/pages"], parts)


@pytest.mark.parametrize("value", ["no_such_module:Pages", f"{__name__}:no_such_name", f"{__name__}:Broken"])
async def test_package_that_cannot_be_loaded_takes_no_other_away(installed, value):
    installed(broken=value, pages=f"{__name__}:Pages")

    assert list(make_extra_pages(object())) == ["/pages"]
    assert extra_page_paths() == ["/broken", "/pages"]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/pages", "pages at /pages"),
        ("/pages/", "pages at /pages/"),
        ("/pages/a/b", "pages at /pages/a/b"),
        ("/pagesa", "own"),
        ("/", "own"),
        ("/a/pages", "own"),
    ],
)
async def test_request_goes_to_the_pages_below_whose_path_it_is(path, answer):
    app = WithExtraPages(PlainTextResponse("own"), {"/pages": Pages(None)})
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1") as http:
        assert (await http.get(path)).text == answer
