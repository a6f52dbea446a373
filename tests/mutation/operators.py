"""Small changes to a module, one at a time, that its tests should notice.

Turns a module's source into its mutants, each a syntax tree with one comparison, number, word or operator changed. It
runs nothing.
"""

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_LARGE = 16
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: where it is, what it says, and how the whole module with it is made.

    The tree is made when it is asked for: those of all mutants of a large package would fill the memory.
    """

    line: int
    said: str
    make: Callable[[], ast.Module]

    @property
    def tree(self) -> ast.Module:
        """The module with the change, made anew each time."""
        return self.make()


def mutants(source: str) -> Iterator[Mutant]:
    """Give all mutants of a module, in the order of its lines."""
    tree = ast.parse(source)
    untouched = _annotations(tree)
    nodes = [node for node in ast.walk(tree) if id(node) not in untouched]
    for node in sorted(nodes, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))):
        for changed in _changes(node):
            before, after = (ast.unparse(each).partition("\n")[0] for each in (node, changed))
            yield Mutant(getattr(node, "lineno", 0), f"{before}  ->  {after}", partial(_whole, tree, node, changed))


def _whole(tree: ast.Module, node: ast.AST, changed: ast.AST) -> ast.Module:
    """A copy of the module in which `changed` stands where the node stands."""
    copies: dict[int, ast.AST] = {}
    whole = deepcopy(tree, copies)  # pyright: ignore[reportArgumentType]
    place = copies[id(node)]
    place.__class__ = changed.__class__
    place.__dict__.clear()
    place.__dict__.update(changed.__dict__)
    return whole


def _annotations(tree: ast.Module) -> set[int]:
    """What says nothing about behaviour: annotations, whether a dataclass is frozen and has slots, and `strict` of a
    `zip`, which finds only mistakes of the module's own."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found += [node.returns] if node.returns else []
            found += [arg.annotation for arg in ast.walk(node.args) if isinstance(arg, ast.arg) and arg.annotation]
        elif isinstance(node, ast.AnnAssign):
            found.append(node.annotation)
        elif isinstance(node, ast.ClassDef):
            found += node.decorator_list
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
            found += node.keywords
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            found.append(node)
    return {id(inner) for node in found for inner in ast.walk(node)}


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """What a node may become; each is a copy of it with one thing changed."""
    if isinstance(node, ast.expr):
        yield from _expressions(node)
    elif isinstance(node, ast.If | ast.While):
        changed = deepcopy(node)
        changed.test = ast.copy_location(ast.Constant(False), node.test)
        yield changed
    elif isinstance(node, ast.Return) and not _is_nothing(node.value):
        yield ast.copy_location(ast.Return(ast.copy_location(ast.Constant(None), node)), node)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        yield ast.copy_location(ast.Pass(), node)


def _is_nothing(value: ast.expr | None) -> bool:
    """Nothing, and what a caller takes for it: None in place of another false value is the type checker's to see."""
    match value:
        case ast.Constant(value=constant):
            return not constant
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return not elements
        case ast.Dict(keys=keys):
            return not keys
        case _:
            return value is None


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(ops=ops):
            for number, operator in enumerate(ops):
                changed = deepcopy(node)
                changed.ops[number] = _COMPARED[type(operator)]()
                yield changed
        case ast.BinOp(op=operator) if type(operator) in _COMPUTED:
            yield _with(node, op=_COMPUTED[type(operator)]())
        case ast.BoolOp(op=operator):
            yield _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield deepcopy(node.operand)
        case ast.Constant(value=bool(value)):
            yield ast.copy_location(ast.Constant(not value), node)
        # 1024 is a unit. A large number is a bound: that it is far too large shows, but not its last byte.
        case ast.Constant(value=int(value)) if value != 1024:
            yield ast.copy_location(ast.Constant(value + 1 if value < _LARGE else 2 * value), node)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLED:
            yield _with(node, func=ast.copy_location(ast.Name(_CALLED[name], ast.Load()), node.func))
        case _:
            return


def _with(node: ast.expr, **fields: ast.AST) -> ast.expr:
    changed = deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
