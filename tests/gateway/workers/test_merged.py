"""Reports of several workers as one."""

from typing import Any

from gateway.workers.worker_pages import merge_readiness, merge_status


def ready(ok: bool = True, **more: Any) -> dict[str, Any]:
    reasons = [] if ok else ["engine: away"]
    return {"ready": ok, "draining": False, "components": {"gateway": True, "engine": ok}, "reasons": reasons, **more}


def upstream(state: str, restarts: int) -> dict[str, Any]:
    return {"state": state, "transport": "http", "tools": 2, "restarts": restarts}


def test_gateway_is_ready_while_one_worker_is_and_says_what_is_wrong_with_the_others() -> None:
    report = merge_readiness({0: ready(ok=False), 2: ready()}, 3, draining=False)

    assert report["ready"]
    assert report["components"] == {"gateway": True, "engine": False}
    assert report["reasons"] == ["worker 0: engine: away", "worker 1 does not answer"]
    assert report["workers"] == {"ready": 1, "of": 3}


def test_gateway_is_not_ready_without_a_worker_or_while_it_stops() -> None:
    assert not merge_readiness({}, 1, draining=False)["ready"]
    assert not merge_readiness({0: ready(ok=False)}, 1, draining=False)["ready"]
    stopping = merge_readiness({0: ready()}, 1, draining=True)
    assert (stopping["ready"], stopping["draining"]) == (False, True)
    assert stopping["reasons"] == ["draining: the gateway is stopping"]


def test_server_is_shown_as_the_worker_sees_it_that_has_most_trouble_with_it() -> None:
    one = ready(upstreams={"a": upstream("up", 1), "b": upstream("up", 0)})
    other = ready(upstreams={"a": upstream("restarting", 2)})

    assert merge_readiness({0: one, 1: other}, 2, draining=False)["upstreams"] == {
        "a": upstream("restarting", 3),
        "b": upstream("up", 0),
    }


def server(name: str, **more: Any) -> dict[str, Any]:
    plain = {"state": "up", "breaker": "closed", "sessions": 1, "in_flight": 2, "queued": 3, "restarts": 4}
    return {"name": name, **plain, "tools": [{"name": "t"}], **more}


def status(number: int, **more: Any) -> dict[str, Any]:
    report = {
        "version": "1",
        "started": f"2026-01-0{number + 1}T00:00:00+00:00",
        "uptime": 10.0 - number,
        "ready": True,
        "reasons": [],
        "definition_tokens": 5,
        "definition_advice": None,
        "servers": [server("a")],
        "engine": {"kind": "url", "up": True, "reason": None},
        "engines": [],
        "shared": None,
        "shim": {"tokenize_calls": 1, "by_map": {f"m{number}": {"shim_ids": 2}}, "since": f"2026-0{number + 1}"},
        "prompt_tokens": {"prompt_tokens": 9 + number, "cached_tokens": 4},
        "prompts": [{"when": f"2026-01-01T00:0{number}:00"}],
        "tool_faults": [{"tool": "odd"}, {"tool": f"odd{number}"}],
    }
    return {**report, **more}


def test_reports_come_to_one_of_the_same_form() -> None:
    workers = [{"number": 0}, {"number": 1}]
    one, other = status(0), status(1, definition_advice="much", servers=[server("a", breaker="open"), server("b")])

    merged = merge_status([one, other], ready(), workers)

    assert merged.keys() == one.keys() | {"workers"}
    assert [(each["name"], each["breaker"], each["sessions"]) for each in merged["servers"]] == [
        ("a", "open", 2),
        ("b", "closed", 1),
    ]
    assert (merged["started"], merged["uptime"]) == (one["started"], 10.0)
    assert merged["definition_advice"] == "much"
    assert merged["shim"] == {
        "tokenize_calls": 2,
        "by_map": {"m0": {"shim_ids": 2}, "m1": {"shim_ids": 2}},
        "since": "2026-01",
    }
    assert [each["when"] for each in merged["prompts"]] == ["2026-01-01T00:01:00", "2026-01-01T00:00:00"]
    assert [each["tool"] for each in merged["tool_faults"]] == ["odd", "odd0", "odd1"]
    assert merged["prompt_tokens"] == {"prompt_tokens": 19, "cached_tokens": 8}
    assert merged["workers"] == workers


def test_engine_is_up_where_it_is_for_all_and_its_answers_are_added_up() -> None:
    member = {"name": "e", "up": True, "reason": None, "answers": 2, "breaker": "closed", "slots": 4}
    away = {"kind": "url", "up": False, "reason": "away"}
    one = status(0, engines=[member])
    other = status(1, engine=away, engines=[{**member, "up": False, "reason": "gone", "answers": 0}])

    merged = merge_status([one, other], ready(), [])

    assert merged["engine"] == away
    assert merged["engines"] == [{**member, "up": False, "reason": "gone", "answers": 2}]


def test_shared_store_is_shown_as_the_worker_sees_it_that_has_none() -> None:
    up, away = ({"up": up, "reason": None if up else "gone", "replicas": 2} for up in (True, False))

    report = merge_status([status(0, shared=up), status(1, shared=away)], ready(), [])

    assert report["shared"] == away
    assert merge_status([status(0, shared=up), status(1, shared=up)], ready(), [])["shared"] == up
