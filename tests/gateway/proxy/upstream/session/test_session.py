"""Whom a session's pushes and questions reach, and what a request becomes on its way to a server of either era."""

import asyncio

import anyio
import pytest

from gateway.deadlines import CallClock, Deadlines
from gateway.errors import RpcError
from gateway.proxy.caller import NOBODY, NOBODY_MODERN, Nobody, Principal
from gateway.proxy.upstream.session.in_flight import TimedCaller
from gateway.proxy.upstream.session.session import Session, least_severe, read_capabilities

pytestmark = pytest.mark.anyio
LOG, PROGRESS = "notifications/message", "notifications/progress"
RELATED = "io.modelcontextprotocol/related-task"


class Person(Nobody):
    """A client's request, or its session, that hears and answers."""

    def __init__(self, name="ann", *, modern=False, session=None, log_level=None):
        super().__init__(modern=modern, principal=Principal(name), capabilities={"roots": {}})
        self.session, self.log_level = session, log_level
        self.heard, self.was_asked = [], []

    def notified(self, method, params):
        self.heard.append((method, params))

    async def asked(self, method, params):
        self.was_asked.append(method)
        return {"asked": method}


class Server:
    """A transport whose server answers when it is told to."""

    first_number = 100

    def __init__(self):
        self.sent, self.running = [], []
        self.answers = asyncio.Queue()

    async def request(self, method, params, exchange=None, *, headers=None, written=None):
        self.sent.append((method, params))
        self.running.append(exchange)
        return await self.answers.get()

    async def notify(self, method, params=None):
        self.sent.append((method, params))


class Talk:
    """A session with it, and what becomes known of the server."""

    def __init__(self, *, modern=False, answer=None, **session):
        self.server, self.dropped, self.changed, self.updated, self.listening = Server(), [], [], [], []
        self.session = Session(
            "up",
            self.dropped.append,
            on_list_changed=self.changed.append,
            on_updated=self.updated.append,
            on_listening=lambda: self.listening.append(True),
            **session,
        )
        chosen = "2026-07-28" if modern else "2025-11-25"
        self.session.negotiated(self.server, chosen, modern=modern, answer=answer or {})

    async def call(self, caller, **params):
        """A call that the server has got and not answered yet."""
        task = asyncio.create_task(self.session.request("tools/call", {"name": "x", **params}, caller))
        await anyio.wait_all_tasks_blocked()
        return task

    async def end(self, *calls, **result):
        for _ in calls:
            self.server.answers.put_nowait({"content": [], **result})
        return [await call for call in calls]


async def test_session_takes_no_request_before_it_was_negotiated():
    session = Session("up", print, on_list_changed=print, on_updated=print)
    with pytest.raises(RuntimeError, match="only after its negotiation"):
        await session.request("ping", {})


async def test_push_that_names_no_request_is_for_the_only_caller_and_else_for_nobody():
    talk, ann, bob = Talk(), Person(), Person("bob")
    talk.session.notified(LOG, {"data": 0})
    first = await talk.call(ann)
    talk.session.notified(LOG, {"data": 1})
    second = await talk.call(bob)
    talk.session.notified(LOG, {"data": 2})
    with pytest.raises(RpcError, match="no client that can answer"):
        await talk.session.asked("elicitation/create", {})
    await talk.end(first)
    talk.session.notified(LOG, {"data": 3})
    asked = await talk.session.asked("elicitation/create", {})
    await talk.end(second)

    assert (ann.heard, bob.heard) == ([(LOG, {"data": 1})], [(LOG, {"data": 3})])
    assert (ann.was_asked, bob.was_asked, asked) == ([], ["elicitation/create"], {"asked": "elicitation/create"})
    assert talk.dropped == ["nobody"] * 2


async def test_agents_call_counts_beside_that_of_a_client_and_a_request_of_ours_does_not():
    talk, ann = Talk(), Person()
    ours = asyncio.create_task(talk.session.ping())
    call = await talk.call(ann)
    talk.session.notified(LOG, {"data": 1})
    agents = await talk.call(Nobody(modern=False, principal=Principal("bob")))
    talk.session.notified(LOG, {"data": 2})
    await talk.end(ours, call, agents)

    assert ann.heard == [(LOG, {"data": 1})]
    assert talk.server.sent[0] == ("ping", {})


@pytest.mark.parametrize("same", [True, False])
async def test_what_the_server_may_still_push_for_a_call_that_was_given_up_reaches_no_other_client(same):
    talk, client = Talk(), Person()
    gone = await talk.call(Person(session=client))
    talk.server.running[0].given_up()
    gone.cancel()
    await asyncio.wait([gone])
    next_one = Person(session=client if same else Person())
    call = await talk.call(next_one)
    talk.session.notified(LOG, {"data": 1})
    talk.server.running[0].answered()
    talk.session.notified(LOG, {"data": 2})
    await talk.end(call)

    assert next_one.heard == [(LOG, {"data": 1})] * same + [(LOG, {"data": 2})]


async def test_push_on_a_request_s_own_stream_is_for_its_caller_and_a_session_of_one_client_is_that_client_s():
    owner, ann, bob = Person("owner"), Person(), Person("bob")
    talk = Talk(owner=owner)
    first, second = await talk.call(ann), await talk.call(bob)
    talk.server.running[0].notified(LOG, {"data": 1})
    talk.session.notified(LOG, {"data": 2})
    assert await talk.server.running[1].asked("roots/list", {}) == {"asked": "roots/list"}
    await talk.end(first, second)

    assert (ann.heard, bob.heard, owner.heard) == ([(LOG, {"data": 1})], [], [(LOG, {"data": 2})])
    assert (ann.was_asked, bob.was_asked) == ([], ["roots/list"])


async def test_lent_session_is_its_borrower_s_until_it_is_given_back():
    talk, ann = Talk(), Person()
    talk.session.lend(ann)
    talk.session.notified(LOG, {"data": 1})
    talk.session.lend(None)
    talk.session.notified(LOG, {"data": 2})

    assert ann.heard == [(LOG, {"data": 1})]


async def test_progress_reaches_the_call_whose_token_it_names_under_the_caller_s_own():
    talk, ann, bob = Talk(), Person(), Person("bob")
    first = await talk.call(ann, _meta={"progressToken": "p"})
    second = await talk.call(bob, _meta={"progressToken": "p"})
    tokens = [params["_meta"]["progressToken"] for _, params in talk.server.sent]
    for number, token in enumerate([*tokens, "p", True, 1, None]):
        talk.session.notified(PROGRESS, {"progressToken": token, "progress": number})
    await talk.end(first, second)
    talk.session.notified(PROGRESS, {"progressToken": tokens[0], "progress": 9})

    assert tokens == [101, 102]
    assert ann.heard == [(PROGRESS, {"progressToken": "p", "progress": 0})]
    assert bob.heard == [(PROGRESS, {"progressToken": "p", "progress": 1})]


async def test_changes_are_for_everybody_and_what_is_for_the_gateway_stays_there():
    talk, ann = Talk(), Person()
    call = await talk.call(ann)
    for kind in ("tools", "prompts", "resources"):
        talk.session.notified(f"notifications/{kind}/list_changed", {})
    meta = {"io.modelcontextprotocol/subscriptionId": 1, "a": 1}
    talk.session.notified("notifications/resources/updated", {"uri": "x:1", "_meta": meta})
    talk.session.notified("notifications/resources/updated", {"uri": "x:2"})
    talk.session.notified("notifications/subscriptions/acknowledged", {})
    await talk.end(call)

    assert talk.changed == ["tools", "prompts", "resources"]
    assert talk.updated == [{"uri": "x:1", "_meta": {"a": 1}}, {"uri": "x:2"}]
    assert (talk.listening, ann.heard) == ([True], [])


@pytest.mark.parametrize(
    ("wanted", "level", "hears"),
    [
        ("warning", "info", False),
        ("warning", "warning", True),
        ("warning", "error", True),
        ("warning", "odd", True),
        (None, "debug", True),
        ("odd", "debug", True),
    ],
)
async def test_log_messages_that_are_less_severe_than_their_caller_wants_are_dropped(wanted, level, hears):
    talk, ann = Talk(), Person(log_level=wanted)
    call = await talk.call(ann)
    talk.session.notified(LOG, {"level": level})
    talk.session.notified("notifications/other", {"level": level})
    await talk.end(call)

    assert [method for method, _ in ann.heard] == [LOG] * hears + ["notifications/other"]


def test_lower_of_two_log_levels_lets_more_through_and_a_word_that_is_none_counts_for_nothing():
    assert [least_severe(*each) for each in (("info", "error"), ("error", "info"), ("info", None))] == ["info"] * 3
    assert [least_severe(*each) for each in (("odd", "error"), ("error", "odd"), ("odd", "strange"))] == [
        "error",
        "error",
        "odd",
    ]


async def test_what_is_about_a_task_is_for_who_made_it():
    talk, ann, bob = Talk(), Person(), Person("bob")
    made = await talk.call(ann, task={})
    await talk.end(made, task={"taskId": "t1"})
    about = {"_meta": {RELATED: {"taskId": "t1"}}}
    with pytest.raises(RpcError, match="unknown task 't1'"):
        await talk.session.request("tasks/get", {"taskId": "t1"}, bob)
    call = await talk.call(bob, **about)
    talk.session.notified(LOG, about)
    with pytest.raises(RpcError, match="no client that can answer"):
        await talk.session.asked("elicitation/create", about)
    await talk.end(call)
    call = await talk.call(ann, **about)
    talk.session.notified(LOG, about)
    await talk.session.asked("elicitation/create", about)
    await talk.end(call)

    assert [RELATED in params.get("_meta", {}) for _, params in talk.server.sent] == [False, False, True]
    assert (bob.heard, bob.was_asked) == ([], [])
    assert (ann.heard, ann.was_asked) == ([(LOG, about)], ["elicitation/create"])


@pytest.mark.parametrize("server_modern", [False, True])
@pytest.mark.parametrize("caller_modern", [False, True])
async def test_task_is_asked_for_only_where_its_caller_could_follow_it(server_modern, caller_modern):
    talk = Talk(modern=server_modern)
    await talk.end(await talk.call(Person(modern=caller_modern), task={"ttl": 1}))

    ((_, params),) = talk.server.sent
    assert ("task" in params) == (server_modern == caller_modern)


@pytest.mark.parametrize("modern", [False, True])
async def test_request_says_who_asks_only_where_each_request_has_to(modern):
    talk = Talk(modern=modern)
    await talk.end(await talk.call(Person()))

    ((_, params),) = talk.server.sent
    assert ("io.modelcontextprotocol/protocolVersion" in params.get("_meta", {})) is modern


@pytest.mark.parametrize(("ids", "told"), [("any", None), ("map", "m"), ("packed", "m")])
@pytest.mark.parametrize("named", ["m", 7])
async def test_server_is_told_the_reader_s_map_only_where_it_is_configured_to(ids, told, named):
    talk = Talk(ids=ids)
    await talk.end(await talk.call(Person(), _meta={"ai.codec/map": named, "a": 1}))

    ((_, params),) = talk.server.sent
    assert params["_meta"].get("ai.codec/map") == (told if named == "m" else None)
    assert params["_meta"]["a"] == 1


async def test_time_of_all_calls_stands_still_while_their_server_asks_outside_of_them():
    talk, answered = Talk(), asyncio.Event()

    async def think(*_):
        await answered.wait()
        return {}

    ann, bob = Person(), Person("bob")
    owner = talk.session.owner = Person("owner")
    owner.asked = think
    with CallClock(Deadlines(), 3600) as clock, CallClock(Deadlines(), 3600) as other:
        calls = [await talk.call(TimedCaller(*each)) for each in ((ann, clock), (bob, other))]
        asking = asyncio.create_task(talk.session.asked("roots/list", {}))
        await anyio.wait_all_tasks_blocked()
        paused = [each.left for each in (clock, other)]
        again = [each.left for each in (clock, other)]
        answered.set()
        await asking
        await talk.end(*calls)

        assert paused == again
        assert clock.left < paused[0]
        assert other.left < paused[1]


async def test_server_that_asks_for_roots_gets_none_where_nobody_can_be_asked_though_some_were_announced():
    talk = Talk()
    with pytest.raises(RpcError, match="no client that can answer"):
        await talk.session.asked("roots/list", {})
    talk.session.announce({"roots", "elicitation"})

    assert talk.session.told_roots
    assert await talk.session.asked("roots/list", {}) == {"roots": []}
    with pytest.raises(RpcError, match="no client that can answer"):
        await talk.session.asked("elicitation/create", {})


@pytest.mark.parametrize("server_modern", [False, True])
async def test_result_has_the_form_of_its_caller_s_era_and_a_question_of_the_modern_one_stays_as_it_is(server_modern):
    talk = Talk(modern=server_modern, answer={"serverInfo": {"name": "s"}})
    result = {"resultType": "complete"} if server_modern else {}
    old, new = [(await talk.end(await talk.call(each), **result))[0] for each in (NOBODY, NOBODY_MODERN)]
    asks = {"resultType": "input_required", "inputRequests": {}}
    questions = [(await talk.end(await talk.call(each), **asks))[0] for each in (NOBODY, NOBODY_MODERN)]

    assert (old.get("resultType"), new["resultType"]) == (None, "complete")
    assert not server_modern or questions == [{"content": [], **asks}] * 2


def test_what_a_server_says_of_itself_is_read_wherever_its_era_says_it_and_whatever_it_is():
    info = {"name": "s"}
    told = [{"serverInfo": info}, {"_meta": {"io.modelcontextprotocol/serverInfo": info}}, {"serverInfo": "s"}]

    assert [Talk(answer=each).session.info for each in told] == [info, info, {}]
    assert [Talk(answer={"instructions": each}).session.instructions for each in ("be kind", 7)] == ["be kind", None]


def test_capabilities_are_objects_whatever_form_a_server_gives_them():
    assert read_capabilities(None) == read_capabilities([]) == {}
    assert read_capabilities(
        {
            "tools": True,
            "prompts": [],
            "resources": {"listChanged": "yes", "subscribe": True, "more": 1},
            "logging": False,
            "completions": ["x"],
            "extensions": {"a": True, "b": [], "c": {"d": 1}, "e": False, "f": "x"},
            "unknown": 7,
            "theirs": {"listChanged": "yes"},
            "flag": True,
        }
    ) == {
        "tools": {},
        "prompts": {},
        "resources": {"subscribe": True, "more": 1},
        "extensions": {"a": {}, "b": {}, "c": {"d": 1}},
        "unknown": 7,
        "theirs": {"listChanged": "yes"},
        "flag": True,
    }
