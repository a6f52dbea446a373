"""A person with a browser, at oidc-provider's own pages: signs in, agrees, and ends at the redirect address."""

import re
from urllib.parse import urljoin

import httpx2

_ACTION = re.compile(r'<form[^>]*action="([^"]+)"')
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')
_STEPS = 20


async def agree(address: str, redirect: str, person: str = "alice") -> str:
    """The address at which the browser ends. `redirect`: how it begins; it is not opened.

    Raises:
        RuntimeError: the browser ended at a page of the authorization server.
    """
    async with httpx2.AsyncClient() as browser:
        answer = await browser.get(address)
        for _ in range(_STEPS):
            if answer.status_code in (302, 303):
                target = urljoin(str(answer.url), answer.headers["location"])
                if target.startswith(redirect):
                    return target
                answer = await browser.get(target)
                continue
            form = _ACTION.search(answer.text)
            if answer.status_code != 200 or form is None:
                raise RuntimeError(f"ended at a page with status {answer.status_code}")
            fields = dict(_HIDDEN.findall(answer.text)) | {"login": person, "password": "any"}
            answer = await browser.post(urljoin(str(answer.url), form[1]), data=fields)
    raise RuntimeError(f"not there after {_STEPS} steps")
