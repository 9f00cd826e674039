"""The plan of the house: which room may know of which (docs/architecture.md), lazy imports included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import bidual

ROOT = Path(bidual.__file__).parent
#: Rooms from the ground up: a room imports from those on lower floors only, or from itself.
FLOORS = (
    ("_util",),
    ("losses", "arrangements", "tables"),
    ("atoms", "networks"),
    ("problem",),
    ("bounds",),
    ("programs", "closed_form", "geometry"),
    ("solvers", "architectures"),
    ("models_onnx",),
    ("models",),
    ("training",),
    ("splines",),
    ("certification",),
    ("study",),
    ("estimators",),
    ("",),  # the package itself: the public names
    ("plots",),
    ("report", "playground"),
    ("cli",),
    ("__main__",),
)
FLOOR = {room: k for k, rooms in enumerate(FLOORS) for room in rooms}


def modules() -> dict[str, Path]:
    names = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


MODULES = modules()


def imports(path: Path) -> Iterator[str]:
    """All modules of the library that a file imports, at the top or inside a function; not those for types alone."""
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)
        named: list[str] = []
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            named = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in named:
            package, _, rest = name.partition(".")
            if package == "bidual":
                while rest not in MODULES:  # a name inside a module
                    rest = rest.rpartition(".")[0]
                yield rest


GRAPH = {name: set(imports(path)) - {name} for name, path in MODULES.items()}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_knows_only_rooms_below_its_own(name):
    room = name.partition(".")[0]
    upwards = {other for other in GRAPH[name] if other.partition(".")[0] != room}
    upwards = {other for other in upwards if FLOOR[other.partition(".")[0]] >= FLOOR[room]}
    assert not upwards, f"{name or 'bidual'} imports {sorted(upwards)}, which do not stand below it"


def test_no_module_imports_itself_through_others():
    """But for the networks and their bridges to torch and ONNX, which are loaded when a network is asked for them."""
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for other in sorted(GRAPH[name]):
                # a package and what it gathers are one: its modules may import their neighbours through it
                inside = name.startswith(f"{other}.") or other.startswith(f"{name}.")
                if not inside and not other.startswith("networks"):
                    visit(other, (*trail, name))
            done.add(name)

    for name in sorted(MODULES):
        visit(name, ())


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("test_*.py")), ids=lambda path: path.stem)
def test_tests_set_numbers_by_tuning_alone(path):
    """A number that is worth setting stands in :class:`bidual._util.tuning.Tuning`; patches are for functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            words = [arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant)]
            numbers = [word for word in words if str(word).rpartition(".")[2].isupper()]
            assert not numbers, f"line {node.lineno} patches {numbers}"
