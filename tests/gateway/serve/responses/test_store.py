"""Stored responses: whose they are, how long, and how many."""

import secrets
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from gateway.serve.responses.exchange import Seal
from gateway.serve.responses.response_store import ResponseStore, StoredResponse

MOST, TTL, SHARE = 20_000, 100.0, 0.5
OWNERS = st.sampled_from(["ann", "bob", "cyd"])


def response(owner: str, number: int, before: str | None = None, size: int = 0) -> StoredResponse:
    name = f"resp_{number}"
    items = (b'{"n": %d}' % number,), (b'"%b"' % (b"x" * size),)
    return StoredResponse(owner, name, before, b"{}", *items, (f"in_{number}", f"out_{number}"))


class Stored(RuleBasedStateMachine):
    """A store beside a list of all that was put there, with when it was used."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store = ResponseStore(MOST, TTL, SHARE, lambda: self.now)
        self.put: dict[str, StoredResponse] = {}
        self.used: dict[str, float] = {}
        self.deleted: set[str] = set()

    ids = Bundle("ids")

    @rule(target=ids, owner=OWNERS, size=st.integers(0, 6000), before=st.none() | ids)
    def add(self, owner: str, size: int, before: str | None) -> str:
        made = response(owner, len(self.put), before, size)
        self.store.put(made)
        self.put[made.id], self.used[made.id] = made, self.now
        return made.id

    @rule(owner=OWNERS, response_id=ids)
    def get(self, owner: str, response_id: str) -> None:
        found = self.store.get(owner, response_id)
        if found is not None:
            self.is_right(owner, found)

    @rule(owner=OWNERS, response_id=ids)
    def item(self, owner: str, response_id: str) -> None:
        number = response_id.removeprefix("resp_")
        for item_id, texts in ((f"in_{number}", "input"), (f"out_{number}", "output")):
            found = self.store.item(owner, item_id)
            if found is not None:
                self.is_right(owner, self.put[response_id])
                assert found == getattr(self.put[response_id], texts)[0]

    @rule(owner=OWNERS, response_id=ids)
    def chain(self, owner: str, response_id: str) -> None:
        found = self.store.chain(owner, response_id)
        if found is not None:
            assert found[0].before is None
            assert found[-1].id == response_id
            assert [each.id for each in found[:-1]] == [each.before for each in found[1:]]
            for each in found:
                self.is_right(owner, each)
        else:
            self.used |= dict.fromkeys(self.walked(owner, response_id), self.now)

    def walked(self, owner: str, response_id: str | None) -> Iterator[str]:
        """Those of a chain that are found before one is missing: they count as used, too."""
        while response_id is not None and self.put[response_id].owner == owner:
            if response_id in self.deleted or self.now >= self.used[response_id] + TTL:
                return
            yield response_id
            response_id = self.put[response_id].before

    @rule(owner=OWNERS, response_id=ids)
    def delete(self, owner: str, response_id: str) -> None:
        if self.store.delete(owner, response_id):
            self.is_right(owner, self.put[response_id])
            self.deleted.add(response_id)
        assert self.store.get(owner, response_id) is None

    @rule(seconds=st.sampled_from([1.0, 40.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def is_right(self, owner: str, found: StoredResponse) -> None:
        assert found is self.put[found.id]
        assert found.owner == owner
        assert found.id not in self.deleted
        assert self.now < self.used[found.id] + TTL
        self.used[found.id] = self.now

    @invariant()
    def is_bounded(self) -> None:
        kept = [each for each in self.put.values() if each.id in self.store._kept]
        assert self.store.size == sum(each.size for each in kept) <= MOST
        owned = {owner: sum(each.size for each in kept if each.owner == owner) for owner in ("ann", "bob", "cyd")}
        assert set(self.store._items) == {(each.owner, item_id) for each in kept for item_id in each.item_ids}
        assert set(self.store._sizes) == set(self.store._owned) == {owner for owner, size in owned.items() if size}


TestStored = Stored.TestCase


def test_response_whose_chain_is_broken_counts_as_used_when_the_chain_is_asked_for() -> None:
    machine = Stored()
    first = machine.add("ann", 0, None)
    second = machine.add("ann", 0, first)
    machine.delete("ann", first)
    machine.wait(40.0)
    machine.wait(40.0)
    machine.chain("ann", second)
    machine.wait(40.0)

    machine.get("ann", second)


def test_principal_has_no_more_than_its_share_beside_others() -> None:
    store = ResponseStore(MOST, TTL, SHARE, lambda: 0.0)
    store.put(response("ann", 0))
    for number in range(1, 40):
        store.put(response("bob", number, size=1000))

    assert store.get("ann", "resp_0") is not None
    assert store.size <= MOST * SHARE + response("ann", 0).size


def test_what_was_used_longest_ago_gives_way_first() -> None:
    store = ResponseStore(3 * response("ann", 0, size=1000).size, TTL, SHARE, lambda: 0.0)
    for number in range(3):
        store.put(response("ann", number, size=1000))
    assert store.get("ann", "resp_0")
    store.put(response("ann", 3, size=1000))

    assert [number for number in range(4) if store.get("ann", f"resp_{number}")] == [0, 2, 3]


def test_response_that_is_used_is_kept_and_one_that_is_not_ends() -> None:
    now = [0.0]
    store = ResponseStore(MOST, TTL, SHARE, lambda: now[0])
    store.put(response("ann", 0))
    store.put(response("ann", 1))
    now[0] = 99.0
    assert store.get("ann", "resp_0")
    now[0] = 101.0

    assert store.get("ann", "resp_1") is None
    assert store.get("ann", "resp_0")
    assert store.size == response("ann", 0).size


def test_chain_that_lost_a_link_is_none() -> None:
    store = ResponseStore(MOST, TTL, SHARE, lambda: 0.0)
    for number, before in enumerate([None, "resp_0", "resp_1"]):
        store.put(response("ann", number, before))

    assert [each.id for each in store.chain("ann", "resp_2") or ()] == ["resp_0", "resp_1", "resp_2"]
    store.delete("ann", "resp_1")
    assert store.chain("ann", "resp_2") is None


def test_response_that_is_larger_than_the_bound_is_not_kept() -> None:
    store = ResponseStore(MOST, TTL, SHARE, lambda: 0.0)
    store.put(response("ann", 0, size=MOST))

    assert store.get("ann", "resp_0") is None
    assert store.size == 0


@given(st.text(), st.text(), st.text())
def test_seal_opens_for_whom_it_was_made_and_nobody_else(owner: str, other: str, text: str) -> None:
    seal = Seal([secrets.token_bytes(32)])
    sealed = seal.close(owner, text)

    assert seal.open(owner, sealed) == text
    assert other == owner or seal.open(other, sealed) is None
    assert Seal([secrets.token_bytes(32)]).open(owner, sealed) is None


@given(st.text(), st.data())
def test_seal_that_was_changed_is_none(text: str, data: Any) -> None:
    seal = Seal([secrets.token_bytes(32)])
    sealed = seal.close("ann", text)
    at = data.draw(st.integers(0, len(sealed) - 1))
    changed = sealed[:at] + data.draw(st.text(max_size=2)) + sealed[at + 1 :]

    assert seal.open("ann", changed) in (None, text)
    assert seal.open("ann", text) is None


def test_item_of_the_same_id_is_each_ones_own() -> None:
    store = ResponseStore(MOST, TTL, SHARE, lambda: 0.0)
    for number, owner in enumerate(["ann", "bob", "bob"]):
        store.put(StoredResponse(owner, f"resp_{number}", None, b"{}", (), (b"%d" % number,), ("mcpr_look:0",)))

    assert (store.item("ann", "mcpr_look:0"), store.item("bob", "mcpr_look:0")) == (b"0", b"2")
    store.delete("bob", "resp_1")
    assert (store.item("ann", "mcpr_look:0"), store.item("bob", "mcpr_look:0")) == (b"0", b"2")


def _opened(sealed: str) -> str:
    return urlsafe_b64decode(sealed.removeprefix("codec1.")).hex()


def test_signature_is_of_one_owner_and_of_each_text_for_itself() -> None:
    seal = Seal([secrets.token_bytes(32)])
    signed = seal.sign("ann", "call", "up", "say", "{}")

    assert signed == seal.sign("ann", "call", "up", "say", "{}")
    others = [
        ("bob", "call", "up", "say", "{}"),
        ("ann", "cal", "lup", "say", "{}"),
        ("ann", "call", "up", "say", "{ }"),
    ]
    assert signed not in {seal.sign(*other) for other in others} | {
        Seal([secrets.token_bytes(32)]).sign("ann", "call", "up", "say", "{}")
    }
    # A text of the model's under a seal is no signature.
    assert signed not in _opened(seal.close("ann", '["ann", "call", "up", "say", "{}"]'))
