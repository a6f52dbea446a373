"""The pages of conversations: figures for who is signed in, words where the settings let them, secrets never."""

import base64
import json
from array import array
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codec_console import listing
from codec_console.conversations import masked_beginning
from codec_console.transcript import transcript_of
from codec_console.transcript_json import ViewOptions
from codec_console.turns import TurnTable
from gateway.config.access import ConsoleConfig
from gateway.config.gateway_config import ServeConfig
from gateway.context.memory import (
    AnswerRecord,
    CallRecord,
    ConversationMemory,
    GenerationRecord,
    Lived,
    LivedTurn,
    Miss,
    Remembered,
    RequestFigures,
    Shown,
)
from gateway.observe.trajectories import Span
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio
TINY = tiny_map()
SECRET = "t0ken-t0ken-t0ken"
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp.exe\x00</pre>"
WORDS = {"user": f"May I pay with {SECRET} here?", "result": f"It says {HOSTILE}.", "model": "hello world"}
ONE = "/console/conversations/7"


def remembered(
    owner: str = "alice", number: int = 7, *, before: Remembered | None = None, made: float = 1.0
) -> Remembered:
    """An answer: a question, a call with its result, and the model's last words."""
    parts = [TINY.encode(text) for text in (WORDS["user"], "call", WORDS["result"], WORDS["model"])]
    user, call, result, model = parts
    held = [] if before is None else before.ids()
    at = len(held)
    calls = [{"id": f"c{number}", "function": {"name": "up__<b>", "arguments": json.dumps({"a": HOSTILE})}}]
    lived = (
        Lived(
            {"role": "assistant", "content": "", "tool_calls": calls}, array("I", call), LivedTurn(start=at + len(user))
        ),
        Lived({"role": "tool", "tool_call_id": f"c{number}", "name": "up__<b>"}, array("I", result)),
        Lived({"role": "assistant", "content": "hello"}, array("I", model), LivedTurn()),
    )
    starts = (at + len(user), at + len(user) + len(call) + len(result))
    spans = [Span("user", len(user)), Span("model", len(call)), Span("leaf", len(result), "up__<b>", "up")]
    generations = [
        GenerationRecord(starts[0], len(call), 0, 0, 0, 0, 0.0, 0.2, 0.1, 0.3, False, array("f")),
        GenerationRecord(
            starts[1], len(model), 1, starts[0], 3, 2, 0.1, 0.2, 0.1, 0.3, True, array("f", [-0.5] * len(model))
        ),
    ]
    miss = Miss("client_changed", 9, 0, 3, was=f"was {SECRET} {HOSTILE}", now="now")
    record = AnswerRecord(
        ended="stop", kept=at, spans=[*spans, Span("model", len(model))], generations=generations,
        calls=[CallRecord(f"c{number}", "up__<b>", "up", 0.4, len(result), 0, False)],
        recall_miss=miss,
    )  # fmt: skip
    return Remembered(
        owner=owner, before=before, place=1, shown=Shown("hello"), lived=lived, kept=at,
        added=array("I", [*user, *call, *result, *model]),
        held=0, engine=0, number=number, answer_id=f"answer{number}.{at}", model="model <i>", map_id=TINY.map_id,
        made=made, record=record, digest=b"", figures=RequestFigures(9, 4, 9, 4, 5, "client_changed"),
    )  # fmt: skip


@pytest.fixture
def open_pages(run_console, settings_of, monkeypatch) -> Callable[..., Any]:
    """A console whose gateway remembers these answers, in a browser that is signed in."""

    class Opened:
        def __init__(self, nodes: tuple[Remembered, ...], texts: str) -> None:
            self.context = run_console(
                settings_of(console=ConsoleConfig(texts=texts, token="x" * 40), serve=ServeConfig(token=SECRET))
            )
            self.nodes = nodes

        async def __aenter__(self) -> Any:
            site = await self.context.__aenter__()
            site.services.engines.maps.add(TINY)
            memory = ConversationMemory(1_000_000)
            for node in self.nodes:
                memory.remember(node, node.answer_id.encode())
            monkeypatch.setattr(site.services.agent.recall, "_memory", memory)
            await site.browser.sign_in()
            return site.browser

        async def __aexit__(self, *error: Any) -> None:
            await self.context.__aexit__(*error)

    return lambda *nodes, texts="off": Opened(nodes, texts)


async def told(browser: Any, path: str) -> dict[str, Any]:
    answer = await browser.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def spelled(ids: dict[str, Any]) -> bytes:
    return base64.b64decode(ids["bytes"])


async def test_no_text_leaves_while_texts_are_off(open_pages) -> None:
    async with open_pages(remembered()) as browser:
        answers = [
            await browser.get(path)
            for path in (
                "/console/conversations",
                ONE,
                f"{ONE}/transcript.json",
                f"{ONE}/ids.json",
                f"{ONE}/differences.json",
            )
        ]

    assert [answer.status_code for answer in answers] == [200] * 5
    # A name that is no tool's of the gateway is the client's word, or the model's.
    said = ("May I pay", "gnp.exe", "hello", "It says", "was ", "up__", '"bytes"', base64.b64encode(b"hello").decode())
    assert not [
        (words, answer.url) for answer in answers for words in said if words in answer.text.replace("it was ", "")
    ]


async def test_every_id_is_told_once_in_ranges(open_pages) -> None:
    node = remembered(before=remembered())
    async with open_pages(node, texts="on") as browser:
        transcript = await told(browser, f"{ONE}/transcript.json")
        ranges = [
            await told(browser, f"{ONE}/ids.json?from={start}&count=7") for start in range(0, transcript["count"], 7)
        ]

    ids = [each for part in ranges for each in part["ids"]]
    shown = [ours for ours, theirs in zip(node.ids(), ids, strict=True) if theirs is not None]
    assert shown == [each for each in ids if each is not None]
    assert transcript["count"] == len(node.ids()) == sum(run[1] for run in transcript["runs"])
    assert [run[0] for run in transcript["runs"]] == [
        sum(run[1] for run in transcript["runs"][:n]) for n in range(len(transcript["runs"]))
    ]


async def test_spellings_come_with_the_ids_where_texts_are_on(open_pages) -> None:
    async with open_pages(remembered(), texts="on") as browser:
        ids = await told(browser, f"{ONE}/ids.json")

    text = spelled(ids).decode()
    assert WORDS["model"] in text
    assert HOSTILE in text
    assert sum(ids["sizes"]) == len(spelled(ids))
    assert len(ids["sizes"]) == len(ids["ids"])


async def test_no_id_leaves_while_texts_are_off(open_pages) -> None:
    # Ids are text to anybody who has the tokenizer; sizes and log-probabilities are nearly that.
    async with open_pages(remembered()) as browser:
        transcript = await told(browser, f"{ONE}/transcript.json")
        ids = await told(browser, f"{ONE}/ids.json")
        differences = await told(browser, f"{ONE}/differences.json")

    assert ids == {"from": 0, "count": transcript["count"]}
    assert (transcript["ids"], transcript["texts"]) == (False, False)
    assert {key: value for key, value in differences.items() if value} == {}
    assert sum(run[1] for run in transcript["runs"]) == transcript["count"]


async def test_ids_of_a_secret_are_never_told(open_pages) -> None:
    node = remembered()
    async with open_pages(node, texts="on") as browser:
        ids = await told(browser, f"{ONE}/ids.json")
        pages = [(await browser.get(path)).text for path in (ONE, f"{ONE}/transcript.json", f"{ONE}/differences.json")]

    left = TINY.decode(each for each in ids["ids"] if each is not None)
    assert None in ids["ids"]
    assert SECRET not in left
    assert SECRET not in spelled(ids).decode()
    # Not a part of it either: it was spelled by ids that hold nothing else.
    assert "t0ken" not in left
    assert left.replace("May I pay with", "").strip().startswith("here?")
    assert not any(SECRET in page for page in pages)


async def test_words_of_calls_and_clients_are_text_on_the_page(open_pages, page_of) -> None:
    async with open_pages(remembered(), texts="on") as browser:
        page = page_of((await browser.get(ONE)).text)

    assert [each.attributes.get("src") for each in page.all("script")] == [
        f"/console/static/{name}.js" for name in ("conversation", "live")
    ]
    assert len(page.all("pre")) == 2
    assert "\\u202egnp.exe\\x00</pre>" in page.all("pre")[1].text
    assert "up__<b>" in page.text
    assert not page.all("b", class_=None) or "\x1b" not in page.text
    assert "\u202e" not in page.text
    assert "was ****" in page.text
    assert not any("style" in each.attributes for each in page.all())


async def test_turns_stand_on_the_page_without_scripts(open_pages) -> None:
    async with open_pages(remembered()) as browser:
        page = await browser.page(ONE)

    first, second = page.all("li", class_="turn card")
    assert "times" not in first.text.replace("not known", "")
    assert "result at token" in first.text
    assert "2 tokens processed while the tools ran" in first.text
    assert "some guessed" in second.text
    assert "(1 reasoning)" in second.text
    assert page.one("noscript").text.strip().startswith("Showing the tokens one by one needs JavaScript")
    assert {each.attributes["class"] for each in first.all("rect")} == {
        f"part-{part}" for part in ("wait", "prefill", "generate", "tools", "hidden-prefill")
    }
    tools, hidden = (first.one("rect", class_=f"part-{part}").attributes for part in ("tools", "hidden-prefill"))
    assert hidden["x"] == tools["x"]
    assert 4 * int(hidden["width"] or 0) == int(tools["width"] or 0) > 0
    assert "hidden prefill 100 ms" in first.text
    assert "hidden prefill" not in second.text


async def test_list_tells_of_all_principals_and_takes_filters(open_pages) -> None:
    bob = replace(remembered("bob", 8, made=2.0), record=None, figures=None)
    async with open_pages(remembered(), bob) as browser:
        page = await browser.page("/console/conversations")
        chosen = [
            await browser.page(f"/console/conversations?{query}") for query in ("caller=bob", "why=any", "model=none")
        ]

    rows = page.all("li", class_="card talk")
    assert [row.one(class_="who").text for row in rows] == ["bob", "alice"]
    assert rows[1].one(class_="talk-cached").text == "4 of 9 prompt tokens cached"
    assert rows[1].one(class_="talk-why").text.startswith("5 recomputed the client changed an earlier message")
    assert rows[0].all(class_="talk-why") == []
    assert datetime.fromisoformat(rows[0].one("time").attributes["datetime"] or "").tzinfo is not None
    assert [row.one("a").text for row in rows] == ["Conversation 8", "Conversation 7"]
    assert [[row.one(class_="who").text for row in each.all("li", class_="card talk")] for each in chosen] == [
        ["bob"],
        ["alice"],
        [],
    ]
    assert "None of the 2 conversations" in chosen[2].text


QUESTION = f"  May I\n\n pay with {SECRET}? {HOSTILE} " + f"{'W' * 200} " * 15


@pytest.mark.parametrize("texts", ["off", "on"])
async def test_last_user_message_names_a_conversation_only_where_text_is_shown(open_pages, texts: str) -> None:
    async with open_pages(remembered(), texts=texts) as browser:
        misses = browser.mount._sources.agent.recall._misses
        said = [("user", "an earlier question"), ("assistant", "yes"), ("user", QUESTION), ("assistant", "no")]
        misses.note(7, "alice", b"", [{"role": role, "content": text} for role, text in said], 0)
        pages = [await browser.page(path) for path in ("/console/conversations", ONE)]

    name = pages[0].one("a", href=ONE).text
    if texts == "off":
        assert name == "Conversation 7"
        assert not any("May I" in page.text for page in pages)
        return
    assert name.startswith("May I pay with ****? <script>alert(1)</script>\\x1b[31m\\u202egnp.exe")
    assert name.endswith("W…")
    assert len(name) < 200
    assert "conversation 7" in pages[0].one("li", class_="card talk").text
    assert name in pages[1].one(class_="question").text


@given(before=st.integers(950, 1100), secret=st.text("ab ", min_size=16, max_size=64).map(lambda text: f"x{text}y"))
def test_beginning_of_a_long_message_holds_no_part_of_a_secret_that_is_cut(before: int, secret: str) -> None:
    begun = masked_beginning(f"{'w ' * (before // 2)}{secret}{' w' * 500_000}", frozenset({secret}))

    assert set(begun) <= set("w *")
    assert 850 < len(begun) <= 1024


@pytest.mark.parametrize(
    "secret", ["https://user:passwort@host/", "https://用户:密码@host/", "Bearer abcdef0123456789"]
)
@given(before=st.integers(985, 1024))
def test_beginning_of_a_long_message_holds_no_part_of_a_credential_that_is_cut(secret: str, before: int) -> None:
    begun = masked_beginning(f"{'语' * before} {secret}{' 语' * 500_000}", frozenset())

    assert "语" * 900 in begun
    assert not [part for part in ("user", "passw", "用户", "密码", "abcdef") if part in begun]


def test_beginning_of_a_long_message_does_not_begin_with_blanks() -> None:
    assert masked_beginning(f"{' ' * 5000}May I?{' ' * 5000}", frozenset()).strip() == "May I?"


async def test_list_says_how_many_prompt_tokens_were_not_recomputed(open_pages) -> None:
    async with open_pages(remembered()) as browser:
        known = {"if-none-match": (await browser.get("/console/conversations")).headers["etag"]}
        browser.mount._sources.metrics.request_answered(prompt=2_000_000, cached=1_234_567)
        later = await browser.get("/console/conversations", **known)
        page = await browser.page("/console/conversations")

    assert later.status_code == 200
    total = page.one(class_="total").text
    assert total == "1,234,567 prompt tokens not recomputed so far of 2,000,000 since the gateway started"


async def test_nobody_sees_any_of_it_without_signing_in(run_console, settings_of) -> None:
    async with run_console(settings_of()) as site:
        site.services.engines.maps.add(TINY)
        node = remembered()
        site.services.agent.recall._memory.remember(node, b"")
        paths = ("/console/conversations", ONE, f"{ONE}/transcript.json", f"{ONE}/ids.json", f"{ONE}/differences.json")
        answers = [await site.browser.get(path, authorization=f"Bearer {SECRET}") for path in paths]

    assert [(answer.status_code, answer.headers["location"]) for answer in answers] == [(303, "/console/sign-in")] * 5


async def test_what_is_recorded_begins_with_signing_in_and_ends_with_signing_out(run_console, settings_of) -> None:
    async with run_console(settings_of()) as site:
        recall, told = site.services.agent.recall, list[bool]()
        told.append(recall.is_watched)
        await site.browser.get("/console/conversations")
        told.append(recall.is_watched)
        for _ in range(2):
            await site.browser.sign_in()
            told.append(recall.is_watched)
            await site.browser.send("/console/sign-out", {})
            told.append(recall.is_watched)

    assert told == [False, False, True, False, True, False]


async def test_what_was_recorded_is_forgotten_with_the_last_session(open_pages) -> None:
    async with open_pages(remembered()) as browser:
        before = await told(browser, f"{ONE}/transcript.json")
        listed = await browser.page("/console/conversations")
        await browser.send("/console/sign-out", {})
        await browser.sign_in()
        after = await told(browser, f"{ONE}/transcript.json")
        again = await browser.page("/console/conversations")
        page = await browser.page(ONE)

    assert before["count"] == after["count"]
    assert "user" in {run[2] for run in before["runs"]}
    assert {"unknown", "user"} & {run[2] for run in after["runs"]} == {"unknown"}
    # The figures of requests belong to the answers.
    assert listed.one("li", class_="card talk").text == again.one("li", class_="card talk").text
    assert "nobody was signed in" in page.one("p", class_="note").text


async def test_one_browser_that_signs_out_leaves_another_recorded_for(run_console, settings_of) -> None:
    async with run_console(settings_of()) as site:
        recall, told = site.services.agent.recall, list[bool]()
        await site.browser.sign_in()
        ours = dict(site.browser.http.cookies)
        site.browser.http.cookies.clear()
        await site.browser.sign_in()
        for _ in range(2):
            await site.browser.send("/console/sign-out", {})
            told.append(recall.is_watched)
            site.browser.http.cookies.update(ours)

    assert told == [True, False]


async def test_what_is_no_longer_remembered_is_told(open_pages) -> None:
    async with open_pages(remembered()) as browser:
        page, ids = (
            await browser.get("/console/conversations/99"),
            await browser.get("/console/conversations/99/ids.json"),
        )
        branch = await browser.get(f"{ONE}/ids.json?answer=nobody")
        gone = await browser.page("/console/conversations?gone=99")

    assert (page.status_code, page.headers["location"]) == (303, "/console/conversations?gone=99")
    assert (ids.status_code, branch.status_code) == (404, 404)
    assert "no longer remembered" in ids.json()["error"]
    assert "Conversation 99 is no longer remembered" in gone.text


async def test_earlier_answer_and_another_branch_can_be_looked_at(open_pages) -> None:
    first = remembered()
    second, other = remembered(before=first, made=2.0), replace(remembered(before=first), answer_id="other", made=1.5)
    async with open_pages(first, second, other) as browser:
        counts = [
            (await told(browser, f"{ONE}/transcript.json{query}"))["count"]
            for query in ("", f"?answer={first.answer_id}", "?answer=other")
        ]
        page = await browser.page(ONE)

    assert counts == [len(second.ids()), len(first.ids()), len(other.ids())]
    assert len(page.one("nav", class_="branches").all("a")) == 2


async def test_page_is_made_anew_only_where_something_came(open_pages) -> None:
    first = remembered()
    async with open_pages(first) as browser:
        page = await browser.get(f"{ONE}?after={first.answer_id}")
        same = await browser.get(f"{ONE}?after={first.answer_id}", **{"if-none-match": page.headers["etag"]})
        recall = browser.mount._sources.agent.recall
        second = remembered(before=first, made=2.0)
        recall._memory.remember(second, b"second")
        later = await browser.get(f"{ONE}?after={first.answer_id}", **{"if-none-match": page.headers["etag"]})
        branch = replace(remembered(before=first, made=3.0), answer_id="branch")
        recall._memory.remember(branch, b"branch")
        told = await browser.get(f"{ONE}?after={second.answer_id}", **{"if-none-match": later.headers["etag"]})

    assert (page.status_code, same.status_code, same.content) == (200, 304, b"")
    assert (later.status_code, told.status_code) == (200, 200)
    assert [f'data-answer="{each}"' in later.text for each in (first.answer_id, second.answer_id)] == [False, True]
    # Another branch is named; what is shown stays.
    assert f'data-answer="{second.answer_id}"' in told.text
    assert "?answer=branch" in told.text


@pytest.mark.parametrize("path", ["/console/conversations", ONE, "/console/why", "/console/servers"])
async def test_open_page_is_told_of_the_engine_as_soon_as_its_state_changes(
    open_pages, page_of, monkeypatch, path: str
) -> None:
    told: list[str] = []
    async with open_pages(remembered()) as browser:
        page = await browser.get(path)
        for state, reason in (("down", "connection refused"), ("down", "no model"), ("ready", None)):
            engine = {"state": state, "reason": reason, "model": "smol"}
            monkeypatch.setattr(browser.mount._sources.status, "engine", lambda engine=engine: engine)
            page = await browser.get(path, **{"if-none-match": page.headers["etag"]})
            assert (await browser.get(path, **{"if-none-match": page.headers["etag"]})).status_code == 304
            live = page_of(page.text).all(**{"data-live": None})
            told += [part.text.strip() for part in live if "Engine" in part.text]

    assert told == ["Engine down: connection refused", "Engine down: no model", "Engine ready: smol"]


async def test_list_is_made_anew_only_where_something_came(open_pages) -> None:
    first = remembered()
    path = "/console/conversations"
    async with open_pages(first) as browser:
        memory = browser.mount._sources.agent.recall._memory
        page = await browser.get(path)
        known = {"if-none-match": page.headers["etag"]}
        statuses = [(await browser.get(each, **known)).status_code for each in (path, f"{path}?why=any")]
        memory.remember(remembered("bob", 8, made=2.0), b"second")
        later = await browser.get(path, **known)
        memory._drop(memory.branches(8)[0])
        memory._drop(memory.branches(7)[0])
        none = await browser.get(path, **{"if-none-match": later.headers["etag"]})
        await browser.sign_in()
        again = await browser.get(path, **{"if-none-match": none.headers["etag"]})

    assert statuses == [304, 200]
    assert (later.status_code, "bob" in later.text) == (200, True)
    assert (none.status_code, "Nothing is remembered yet" in none.text) == (200, True)
    # What one session was told stands in no other's way.
    assert again.status_code == 200


async def test_row_is_made_once_while_it_stands_in_the_list(open_pages, monkeypatch) -> None:
    made: list[int] = []

    def row_of(node: Remembered, *more: Any) -> listing.Row:
        made.append(node.number)
        return one_row(node, *more)

    one_row = listing._row
    monkeypatch.setattr(listing, "_row", row_of)
    first = remembered()
    async with open_pages(first) as browser:
        memory = browser.mount._sources.agent.recall._memory
        await browser.page("/console/conversations")
        memory.remember(remembered("bob", 8, made=2.0), b"second")
        page = await browser.page("/console/conversations")
        memory.remember(remembered(before=first, made=3.0), b"third")
        later = await browser.page("/console/conversations")

    assert made == [7, 8, 7]
    assert [[row.one("a").text for row in each.all("li", class_="card talk")] for each in (page, later)] == [
        ["Conversation 8", "Conversation 7"],
        ["Conversation 7", "Conversation 8"],
    ]


async def test_list_has_pages_and_each_row_stands_on_one(open_pages) -> None:
    nodes = [remembered(("alice", "bob")[n % 2], n, made=float(n)) for n in range(120)]
    async with open_pages(*nodes) as browser:
        pages = [await browser.page("/console/conversations")]
        while after := pages[-1].all("a", rel="next"):
            pages.append(await browser.page(after[0].attributes["href"] or ""))
        before = pages[1].one("a", rel="prev").attributes["href"] or ""
        first = await browser.page(before)
        beyond = await browser.page("/console/conversations?page=99")
        bobs = await browser.page("/console/conversations?caller=bob")
        rest = await browser.page(bobs.one("a", rel="next").attributes["href"] or "")

    names = [[row.one("a").text for row in page.all("li", class_="card talk")] for page in pages]
    assert [len(each) for each in names] == [50, 50, 20]
    assert [name for each in names for name in each] == [f"Conversation {n}" for n in reversed(range(120))]
    assert pages[1].one("p", class_="pager").text == "51 to 100 of 120 before next"
    assert first.text == pages[0].text
    assert [row.one("a").text for row in beyond.all("li", class_="card talk")] == names[2]
    assert {row.one(class_="who").text for row in rest.all("li", class_="card talk")} == {"bob"}
    assert "51 to 60 of 60" in rest.text


@given(kept=st.lists(st.integers(0, 200), min_size=1, max_size=5), data=st.data())
def test_table_that_takes_over_rows_is_the_one_that_is_made_anew(kept: list[int], data: st.DataObject) -> None:
    node, known = None, dict[Any, Any]()
    for number, count in enumerate(kept):
        node = remembered(before=node)
        assert node.record is not None
        # What its client changed cuts the answers before it, or takes its record.
        node.kept, node.answer_id = min(count, node.kept), f"answer{number}"
        node.record = None if data.draw(st.booleans()) else replace(node.record, kept=node.kept)
        transcript, view = transcript_of(node), ViewOptions(TINY, (), texts=data.draw(st.booleans()))
        table = TurnTable(transcript, view, frozenset(), known)
        fresh = TurnTable(transcript, view, frozenset())
        assert [replace(each.row, when=None) for each in table.answers] == [
            replace(each.row, when=None) for each in fresh.answers
        ]
        known = table.kept


@pytest.mark.parametrize("texts", [False, True])
def test_rows_hold_the_text_of_calls_only_where_text_may_be_shown(texts: bool) -> None:
    table = TurnTable(transcript_of(remembered()), ViewOptions(TINY, (), texts=texts), frozenset())
    rows = [each.row for each in table.answers]
    calls = [call for row in rows for turn in row.turns for call in turn.calls]

    found = [row.was for row in rows] + [text for call in calls for text in (call.name, call.arguments, call.result)]
    assert [text is not None for text in found] == [texts] * 4


def test_row_of_a_request_is_taken_over_while_its_conversation_grows() -> None:
    first = remembered()
    view = ViewOptions(TINY, (), texts=True)
    before = TurnTable(transcript_of(first), view, frozenset())
    after = TurnTable(transcript_of(remembered(before=first, made=2.0)), view, frozenset(), before.kept)
    masked = TurnTable(transcript_of(first), view, frozenset({"gnp.exe"}), before.kept)

    assert [each in before.answers for each in after.answers] == [True, False]
    # What is a secret since then is shown no more.
    assert [each in before.answers for each in masked.answers] == [False]


async def test_answer_that_is_followed_and_forgotten_is_told(open_pages, page_of) -> None:
    first = remembered()
    async with open_pages(first) as browser:
        gone = await browser.get(f"{ONE}?after=evicted")
        page = await browser.page(gone.headers["location"])

    assert gone.headers["location"] == "/console/conversations?gone=7"
    assert "An answer of conversation 7 is no longer remembered" in page.one("p", role="status").text


async def test_answers_say_how_much_of_the_one_before_they_begin_with(open_pages) -> None:
    first = remembered()
    second = remembered(before=first, made=2.0)
    async with open_pages(second) as browser:
        transcript = await told(browser, f"{ONE}/transcript.json")

    assert transcript["answers"] == [[first.answer_id, 0], [second.answer_id, len(first.ids())]]


async def test_client_of_any_name_can_be_chosen(open_pages) -> None:
    name = f"\u202e{HOSTILE}" + "W" * 5000
    async with open_pages(remembered(name), remembered("bob", 8)) as browser:
        page = await browser.page("/console/conversations")
        options = [each.attributes["value"] or "" for each in page.one("select", id="caller").all("option")]
        (hostile,) = (each for each in options if "gnp" in each)
        answer = await browser.http.get("/console/conversations", params={"caller": hostile})

    assert answer.text.count('class="card talk"') == 1
    assert "\u202e" not in answer.text
    assert len(hostile) < 200


async def test_differences_are_those_of_tokenizing_the_text_again(open_pages) -> None:
    node = remembered()
    # The same bytes in ids that nobody's tokenizer would choose: one a byte.
    split = [TINY.encode(letter)[0] for letter in "hello world"]
    added = array("I", [*node.added[: len(node.added) - len(TINY.encode("hello world"))], *split])
    lived = (*node.lived[:2], replace(node.lived[2], ids=array("I", split)))
    spans = [*node.record.spans[:3], Span("model", len(split))]
    odd = replace(node, added=added, lived=lived, record=replace(node.record, spans=spans))
    async with open_pages(odd, texts="on") as browser:
        found = await told(browser, f"{ONE}/differences.json")

    start = len(added) - len(split)
    assert found["known"] is True
    assert found["next"] is None
    assert min(each["at"] for each in found["differences"]) >= start
    others = [other for each in found["differences"] for other in each["ids"]]
    assert 0 < len(others) < sum(each["count"] for each in found["differences"])
    assert all(len(each["bytes"]) == len(each["ids"]) for each in found["differences"])


async def test_ranges_have_a_bound_and_odd_numbers_do_no_harm(open_pages) -> None:
    node = remembered()
    long = replace(node, added=array("I", [5] * 10_000), record=None, lived=())
    long = replace(long, lived=(Lived({"role": "assistant", "content": ""}, array("I", [5]), LivedTurn()),))
    async with open_pages(long, texts="on") as browser:
        counts = [
            len((await told(browser, f"{ONE}/ids.json?{query}"))["ids"])
            for query in (
                "count=1000000",
                "from=9999",
                "from=10000",
                "from=-1&count=x",
                "from=99999999999999999999",
                "count=٣",
            )
        ]

    assert counts == [4096, 1, 0, 4096, 4096, 4096]


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "x", "%0d%0aset-cookie:a=b", "٣"])
async def test_number_that_is_none_is_no_conversation(open_pages, number: str) -> None:
    async with open_pages(remembered()) as browser:
        page = await browser.get(f"/console/conversations/{number}")
        ids = await browser.get(f"/console/conversations/{number}/ids.json")

    assert (page.status_code, page.headers["location"]) == (303, "/console/conversations")
    assert ids.status_code == 404


async def test_secret_that_a_reload_adds_is_hidden_in_a_page_that_was_seen_before(open_pages, monkeypatch) -> None:
    secret = WORDS["model"]
    async with open_pages(remembered(), texts="on") as browser:
        page = await browser.get(ONE)
        assert secret in spelled(await told(browser, f"{ONE}/ids.json")).decode()
        monkeypatch.setattr("codec_console.conversations.secrets_of", lambda config: frozenset({secret}))

        again = await browser.get(ONE, **{"if-none-match": page.headers["etag"]})
        ids = await told(browser, f"{ONE}/ids.json")

    assert again.status_code == 200
    assert secret not in spelled(ids).decode()
