"""Where conversations are answered: alike everywhere, and no busier than the others."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.pool.engine_choice import WARM, Load, choose, home_key, order_of, warmth, with_room

names = st.lists(st.text("abcdefgh-0123456789", min_size=1, max_size=8), min_size=1, max_size=8, unique=True)
keys = st.binary(min_size=16, max_size=16)


def keys_of(count: int) -> list[bytes]:
    return [home_key("ada", [{"role": "user", "content": f"question {n}"}]) for n in range(count)]


@given(keys, names, st.randoms(use_true_random=False))
def test_gateways_that_list_the_engines_otherwise_choose_alike(key: bytes, members: list[str], draw: object) -> None:
    shuffled = list(members)
    draw.shuffle(shuffled)  # pyright: ignore[reportAttributeAccessIssue]

    assert order_of(key, members) == order_of(key, shuffled)


@given(keys, names)
def test_an_engine_that_is_lost_moves_no_conversation_of_another(key: bytes, members: list[str]) -> None:
    order = order_of(key, members)

    for lost in members:
        assert order_of(key, [name for name in members if name != lost]) == [name for name in order if name != lost]


def test_one_that_joins_takes_its_part_and_nothing_else_moves() -> None:
    for count in range(1, 9):
        before = [f"engine-{n}" for n in range(count)]
        homes = [(order_of(key, before)[0], order_of(key, [*before, "new"])[0]) for key in keys_of(4000)]
        moved = [to for home, to in homes if home != to]

        assert set(moved) == {"new"}
        assert len(moved) / len(homes) <= 1 / (count + 1) + 0.02


def test_homes_are_spread_evenly() -> None:
    counted = Counter(order_of(key, ["a", "b", "c", "d"])[0] for key in keys_of(4000))

    assert min(counted.values()) > 900
    assert max(counted.values()) < 1100


def test_a_home_hangs_on_who_asks_what_stands_first_and_the_first_question() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    later = [*messages, {"role": "assistant", "content": "So."}, {"role": "user", "content": "And then?"}]

    home = home_key("ada", messages)

    assert home_key("ada", later) == home
    assert home_key("bob", messages) != home
    assert home_key("ada", [{"role": "system", "content": "Be long."}, messages[1]]) != home
    assert home_key("ada", [messages[0], {"role": "user", "content": "How?"}]) != home


@given(st.lists(keys, min_size=1, max_size=120), names, st.integers(1, 4))
def test_no_engine_has_more_than_its_bound(arriving: list[bytes], members: list[str], slots: int) -> None:
    running: Counter[str] = Counter()
    for key in arriving:
        loads = {name: Load(running[name], slots) for name in members}
        running[choose(order_of(key, members), loads)] += 1

    mean = len(arriving) / len(members)
    assert max(running.values()) <= max(slots, 1.25 * mean + 1)


@given(keys, names, st.integers(1, 8), st.data())
def test_below_its_slots_the_home_is_asked_whatever_the_others_do(
    key: bytes, members: list[str], slots: int, data: st.DataObject
) -> None:
    order = order_of(key, members)
    loads = {name: Load(data.draw(st.integers(0, 100)), slots) for name in members}
    loads[order[0]] = Load(data.draw(st.integers(0, slots - 1)), slots)

    assert choose(order, loads) == order[0]


def test_one_that_holds_the_conversation_is_asked_though_it_is_not_its_home_up_to_twice_the_mean() -> None:
    order = ["home", "next", "last"]

    assert choose(order, {name: Load(4, 1) for name in order}, known="last") == "last"
    assert choose(order, {**{name: Load(4, 1) for name in order}, "last": Load(20, 1)}, known="last") == "home"
    assert choose(order, {name: Load(4, 1) for name in order}, known="gone") == "home"


def test_a_full_home_sends_on_to_the_next_of_the_order() -> None:
    loads = {"home": Load(9, 2), "next": Load(2, 2), "last": Load(2, 2)}

    assert choose(["home", "next", "last"], loads) == "next"


def test_a_new_engine_takes_more_the_longer_it_is_there() -> None:
    def taken(warmth: float) -> int:
        running: Counter[str] = Counter()
        for key in keys_of(200):
            loads = {name: Load(running[name], 2, warmth if name == "new" else 1.0) for name in ("old", "older", "new")}
            running[choose(order_of(key, loads), loads)] += 1
        return running["new"]

    shares = [taken(warmth) for warmth in (0.1, 0.3, 0.6, 1.0)]

    assert all(one < other for one, other in pairwise(shares))
    assert shares[0] >= 1


def test_engines_that_are_equally_new_are_homes_as_ever() -> None:
    for key in keys_of(20):
        order = order_of(key, ["a", "b", "c"])
        assert choose(order, {name: Load(0, 2, 0.01) for name in order}) == order[0]


def test_an_engine_is_warm_after_a_while_and_not_before() -> None:
    assert warmth(0.0) == 0.0
    assert warmth(WARM / 2) == 0.5
    assert warmth(WARM) == warmth(100 * WARM) == 1.0


def test_where_no_more_may_wait_is_left_out_unless_that_is_everywhere() -> None:
    full, busy = Load(64, 4), Load(63, 4)

    assert with_room({"full": full, "busy": busy}) == {"busy": busy}
    assert with_room({"full": full}) == {"full": full}


def test_home_of_a_conversation_without_a_question_hangs_on_all_that_it_says() -> None:
    said = [{"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "Yes."}]

    assert home_key("ada", said) != home_key("ada", said[:1])
    assert home_key("ada", said) != home_key("ada", [said[0], {"role": "assistant", "content": "No."}])
    assert home_key("ada", said) != home_key("ada", [said[0], {"role": "tool", "content": "Yes."}])


def test_engine_is_passed_over_from_a_quarter_above_the_mean_on() -> None:
    order = ["home", "next"]

    # With the new one a mean of 8; up to 10 run at the home.
    assert choose(order, {"home": Load(9, 1), "next": Load(6, 1)}) == "home"
    assert choose(order, {"home": Load(10, 1), "next": Load(5, 1)}) == "next"
    # One that holds the conversation is asked below twice the mean.
    assert choose(order, {"home": Load(0, 1), "next": Load(15, 1)}, known="next") == "next"
    assert choose(order, {"home": Load(0, 1), "next": Load(16, 1)}, known="next") == "next"
    assert choose(order, {"home": Load(1, 1), "next": Load(17, 1)}, known="next") == "next"
    assert (
        choose([*order, "last"], {"home": Load(0, 1), "next": Load(17, 1), "last": Load(0, 1)}, known="next") == "home"
    )


def test_where_all_are_above_their_bounds_the_least_busy_for_its_warmth_is_asked() -> None:
    assert choose(["cold", "warm"], {"cold": Load(2, 2, 0.05), "warm": Load(9, 2, 1.0)}) == "warm"
    assert choose(["cold"], {"cold": Load(9, 2, 0.0)}) == "cold"


def test_cold_engine_takes_a_tenth_of_its_share_at_least_and_one_conversation() -> None:
    order = ["cold", "warm"]

    assert choose(order, {"cold": Load(1, 20, 0.0), "warm": Load(0, 20)}) == "cold"
    assert choose(order, {"cold": Load(2, 20, 0.0), "warm": Load(0, 20)}) == "warm"
    assert choose(order, {"cold": Load(0, 2, 0.0), "warm": Load(0, 2)}) == "cold"
    assert choose(order, {"cold": Load(1, 2, 0.0), "warm": Load(0, 2)}) == "warm"


def test_engines_that_are_all_half_warm_take_as_much_as_warm_ones() -> None:
    loads = {"home": Load(1, 2, 0.5), "next": Load(0, 2, 0.5)}

    assert choose(["home", "next"], loads) == "home"
    assert choose(["home", "next"], {**loads, "next": Load(0, 2, 1.0)}) == "next"
