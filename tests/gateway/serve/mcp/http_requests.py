"""Servers and requests of the tests of sessions over HTTP."""

import json


def text(words):
    return {"content": [{"type": "text", "text": words}]}


async def quiet(_, __):
    return text("done")


async def chatty(params, caller):
    for step in range(3):
        caller.notified("notifications/progress", {"progressToken": "p", "progress": step})
    return text("done")


async def curious(_, caller):
    return text(json.dumps(await caller.asked("elicitation/create", {"message": "who?"})))


async def send_batch(session, *messages):
    content = json.dumps([{"jsonrpc": "2.0", **message} for message in messages])
    return await session.http.post(session.url, content=content, headers=session.headers)


def calling(tool, request_id):
    return {"id": request_id, "method": "tools/call", "params": {"name": tool}}
