"""What many servers say of themselves, as one server would."""

from gateway.proxy.merged_lists import list_result, merge_capabilities, merge_instructions
from gateway.proxy.upstream.supervision.listing import Listed

INFO = {"name": "s", "version": "1"}


def test_capabilities_are_the_union_of_all():
    merged = merge_capabilities(
        [
            {"tools": {}, "resources": {"subscribe": True}, "experimental": {"a": {"x": 1}}},
            {"resources": {"subscribe": False}, "logging": {}, "experimental": {"b": {}}},
        ]
    )

    assert merged == {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "logging": {},
        "experimental": {"a": {"x": 1}, "b": {}},
    }


def test_nothing_is_advertised_that_no_server_has():
    assert merge_capabilities([{"tools": {}}]) == {"tools": {"listChanged": True}}
    assert merge_capabilities([]) == {}


def test_capabilities_of_the_servers_are_left_as_they_are():
    offer = {"tools": {"x": {"y": 1}}}
    merge_capabilities([offer, {"tools": {"x": {"z": 2}}}])

    assert offer == {"tools": {"x": {"y": 1}}}


def test_tasks_are_advertised_for_a_single_server_only_because_their_methods_name_no_server():
    assert "tasks" in merge_capabilities([{"tasks": {"list": {}}}])
    assert "tasks" not in merge_capabilities([{"tasks": {"list": {}}}, {"tools": {}}])


def test_instructions_of_one_server_stay_its_own_words_and_those_of_several_carry_names():
    assert merge_instructions([]) is None
    assert merge_instructions([("a", "be kind")]) == "be kind"
    assert merge_instructions([("a", "be kind"), ("b", "be quick")]) == "# a\n\nbe kind\n\n# b\n\nbe quick"


def test_instructions_of_many_servers_are_bounded():
    assert len(merge_instructions([("a", "x" * 20_000), ("b", "y" * 20_000)]) or "") == 16_384


def test_list_of_a_single_server_keeps_what_stood_around_it():
    listed = Listed(({"name": "t"},), {"_meta": {"k": None}, "x-vendor": 1})

    assert list_result("tools", [{"name": "t"}], [(listed, False)], INFO, modern=False) == {
        "_meta": {"k": None},
        "x-vendor": 1,
        "tools": [{"name": "t"}],
    }


def test_list_of_a_single_server_in_the_other_era_gets_that_eras_shape():
    listed = Listed(({"name": "t"},), {"x-vendor": 1})
    modern = list_result("tools", [], [(listed, False)], INFO, modern=True)
    around = {**modern}
    around.pop("tools")
    back = list_result("tools", [], [(Listed((), around), True)], INFO, modern=False)

    assert modern == {
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "x-vendor": 1,
        "tools": [],
        "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
    }
    assert back == {"x-vendor": 1, "tools": []}


def test_modern_list_of_a_modern_server_keeps_its_own_word_on_how_long_it_holds():
    listed = Listed((), {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"})

    assert list_result("prompts", [], [(listed, True)], {}, modern=True)["ttlMs"] == 60_000


def test_list_of_several_servers_is_nobodys_own():
    assert list_result("templates", [], (), {}, modern=False) == {"resourceTemplates": []}
    assert list_result("resources", [], (), {}, modern=True)["resultType"] == "complete"
