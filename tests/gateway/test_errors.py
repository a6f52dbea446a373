"""Every exception class of the gateway stands in the tree, or beside it with the package that it does not leave."""

import ast
import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway import errors
from tests.cases import each_of

GATEWAY = Path(errors.__file__).parent
DRAWN = (errors.__doc__ or "").partition("Some exceptions stand outside")
IN_TREE = set(re.findall(r"[├└]── (\w+)", DRAWN[0])) | {"GatewayError"}
OUTSIDE = {
    package.replace(".", "/"): set(names.split(", "))
    for package, names in re.findall(r"^([\w.]+)  +(\w[\w, ]+)$", DRAWN[2], re.MULTILINE)
}
KNOWN = {"Exception", "ValueError", "LookupError", "OSError", "RuntimeError", "KeyError"}


@functools.cache
def raised() -> list[tuple[str, str, str]]:
    """Each class that is an exception: its module, its name, its first base."""
    classes = [
        (str(path.relative_to(GATEWAY)), node.name, node.bases[0].id)
        for path in sorted(GATEWAY.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.bases and isinstance(node.bases[0], ast.Name)
    ]
    known, found = set(KNOWN), list[tuple[str, str, str]]()
    while new := [entry for entry in classes if entry[2] in known and entry not in found]:
        found += new
        known |= {name for _, name, _ in new}
    return found


def test_every_exception_is_drawn() -> None:
    for module, name, _ in raised():
        if name in IN_TREE:
            continue
        packages = [package for package, names in OUTSIDE.items() if name in names]

        assert packages, f"{name} stands in no tree: draw it in gateway/errors.py"
        assert module.startswith(packages[0]), f"{name} is drawn at {packages[0]}"


def test_what_is_drawn_is_there() -> None:
    assert {name for _, name, _ in raised()} == IN_TREE.union(*OUTSIDE.values())


@each_of(
    ("made", "carried"),
    [
        (lambda: errors.EngineRefused("no", 503), {"status": 503}),
        (lambda: errors.GrammarRefused("no", 400), {"status": 400}),
        (
            lambda: errors.MapDiffers("no", sample="a", map_ids=[1], engine_ids=[2]),
            {"sample": "a", "map_ids": [1], "engine_ids": [2]},
        ),
        (lambda: errors.UpstreamTimeout("no", server="s"), {"server": "s"}),
        (lambda: errors.UpstreamUnavailable("no", server="s"), {"server": "s", "begun": False}),
        (lambda: errors.RequestInvalid("no", param="n"), {"param": "n"}),
        (lambda: errors.ModelUnknown("no"), {"param": "model"}),
        (lambda: errors.ContextExceeded("no", 9, 8), {"param": "messages", "tokens": 9, "context": 8}),
        (lambda: errors.OwnerGone("no"), {"asked": False}),
        (lambda: errors.rpc_error(-32602, "no"), {"error": {"code": -32602, "message": "no"}}),
        (
            lambda: errors.rpc_error(-32602, "no", uri="x"),
            {"error": {"code": -32602, "message": "no", "data": {"uri": "x"}}},
        ),
    ],
)
def test_error_says_its_message_alone_and_carries_the_rest_for_its_callers(
    made: Callable[[], errors.GatewayError], carried: dict[str, object]
) -> None:
    error = made()

    assert (str(error), error.message, vars(error)) == ("no", "no", carried)


def test_error_of_a_sign_in_names_the_server_and_the_page() -> None:
    error = errors.SignInNeeded("git", "https://g/sign-in")

    assert error.message == str(error)
    assert error.message.startswith("server 'git' needs you to sign in to it: open https://g/sign-in in a browser")
    assert vars(error) == {"server": "git", "begun": False, "page": "https://g/sign-in"}


def test_error_without_a_sentence_is_named_by_its_class() -> None:
    assert errors.UnknownTool().message == "UnknownTool"


def test_first_of_our_errors_is_found_however_deep_it_is_and_another_s_group_is_raised_as_it_is() -> None:
    ours, other = errors.UnknownTool("a"), ValueError("b")
    deep = BaseExceptionGroup("", [other, BaseExceptionGroup("", [ours, errors.MapUnknown("c")])])
    alone = BaseExceptionGroup("", [other])

    assert errors.first_of_ours(deep) is ours
    with pytest.raises(BaseExceptionGroup) as raised:
        errors.first_of_ours(alone)
    assert raised.value is alone
