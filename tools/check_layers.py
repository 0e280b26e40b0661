"""The layer check of `make lint`: what may include or import what, and where things stand.

Usage: check_layers.py [ROOT]; the default is this repository. Exit 1 and one line per violation.
The rules are the tables below; docs/architecture.md says why.
"""

from __future__ import annotations

import ast
import graphlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# csrc/: a room, with the folders inside it, may include itself and every room that it lists.
CPP_BELOW = {
    "base": set(),
    "memory": {"base"},
    "mpi": {"base"},
    "transport": {"base", "memory", "mpi"},
    "store": {"base", "memory"},
    "select": {"base", "memory", "store"},
    "plan": {"base", "memory", "store", "select"},
    "gather": {"base", "memory", "store", "select", "plan"},
    "link": {"base", "memory", "store", "select", "plan", "gather"},
    "deliver": {"base", "memory", "store", "select", "plan", "gather", "link"},
    "group": {
        "base",
        "memory",
        "store",
        "select",
        "plan",
        "gather",
        "link",
        "deliver",
        "transport",
    },
}
CPP_BELOW["bindings"] = set(CPP_BELOW)

# process_group/src/: the same, of its own rooms and those of csrc/.
PROCESS_GROUP_BELOW = {
    "schedule": {"base"},
    "ranks": {"base", "schedule"},
    "engine": {"base", "memory", "schedule", "ranks"},
    "over_mpi": {"base", "memory", "mpi", "schedule", "ranks", "engine"},
    "torch": {"base", "memory", "mpi", "schedule", "ranks", "engine", "over_mpi"},
    "emu": {"base", "ranks"},
    "emu_torch": {"base", "ranks", "emu"},
}
ROOMS = {"csrc": CPP_BELOW, "process_group/src": PROCESS_GROUP_BELOW}

MOST_IN_A_FOLDER = 12  # a header and its sources count as one
FACTORY = "make_"  # declared with the interface, defined with what it makes

# What needs the CUDA toolkit stands in these folders, and nobody outside them includes it.
TOOLKIT_FOLDERS = {"cuda", "nccl"}
TOOLKIT_INCLUDE = re.compile(
    r"\s*#\s*include\s*<(cuda|cub/|thrust/|nvtx3/|cooperative_groups|nvml|nv/|driver_types)"
)
STAND_INS = "without_cuda"  # defines what a room's toolkit folder defines, in a build without it

# What goes into libgear_mpi.so, and into the extension gear_mpi._c10d.
MPI_FOLDERS = ("csrc/mpi/", "csrc/transport/mpi/", "process_group/src/over_mpi/")
TORCH_FOLDERS = ("process_group/src/torch/", "process_group/src/emu_torch/")
TORCH = {"torch", "ATen", "c10/"}
MPI_INCLUDE = re.compile(r"\s*#\s*include\s*[<\"]mpi(-ext)?\.h")

# gear/: a module or package imports only what stands on an earlier line, and itself. Imports inside
# functions count; those under TYPE_CHECKING do not.
PYTHON_LAYERS = [
    {"_core", "namesake"},
    {"errors"},
    {"arguments", "device", "frameworks", "in_process", "log", "seeds", "whole"},
    {"arrays", "episode", "rate_limit", "schema", "samplers", "statistics"},
    {"batch", "distributed", "loader_state", "window", "vector_writer", "writer"},
    {"loader", "checkpoint"},
    {"buffer"},
    {"datasets"},
    {"emu", "integrations", "mpi"},
    {"train"},
    {"cli"},
]
FACE = "buffer"  # up to this layer, modules name each other; those above may `import gear`

FRAMEWORKS = {"torch", "deepspeed", "horovod", "mpi4py"}
FRAMEWORK_FOLDERS = {"distributed", "emu", "integrations", "train"}
# Import no framework but inside functions: part of the face, and models, which need none.
LAZY_FOLDERS = {"distributed", "emu"}

# What stands at the margin: clang-format leaves namespaces unindented.
TYPE_DEFINED = re.compile(
    r"^(?:class|struct|enum class|enum|union)(?: alignas\([^)]*\))? (\w+)(?!\w|::)[^;{()]*\{", re.M
)
FUNCTION_DECLARED = re.compile(
    r"^(?!using|return|inline|template|static)\w[\w:<>,&* ]*?[ &*](\w+)\([^;{]*\)[^;{]*;$", re.M
)
DEFINED = re.compile(
    r"^(?!using|return|static|inline|namespace|template|#)[\w:~][\w:<>,&* ]*?(?:[ &*]|^)"
    r"(?:(?P<owner>[A-Z]\w*)::[\w:~]+|(?P<function>[a-z]\w*))\([^;{]*\)[^;{]*\{",
    re.M,
)

BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "handler", "misc"}


def source_files(root: Path) -> Iterator[Path]:
    """Source files of the tree. Outputs and hidden folders are not looked into: tests that run
    at the same time take files of theirs away."""
    for folder, inside, names in os.walk(root):
        outputs = {"build", "dist"} if Path(folder) == root else set()
        inside[:] = sorted(one for one in inside if one not in outputs and one[0] != ".")
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix in {".py", ".h", ".cpp", ".cu", ".cuh", ".sh"} and name[0] != ".":
                yield path


def check_name(root: Path, path: Path) -> Iterator[str]:
    name = path.relative_to(root).as_posix()
    for part in Path(name).with_suffix("").parts:
        if BANNED_NAMES & set(part.split("_")):
            yield f"{name}: '{part}' says nothing about what is in it"


def top_of(root: Path, path: Path) -> str:
    """The folder of ROOMS that holds this file; empty if none does."""
    return next((top for top in ROOMS if path.is_relative_to(root / top)), "")


def room_of(root: Path, path: Path) -> str:
    """Where a type's name is unique: a room of csrc/, or the process group."""
    top = top_of(root, path)
    return path.relative_to(root / top).parts[0] if top == "csrc" else top


def needs_toolkit(name: str) -> bool:
    return not TOOLKIT_FOLDERS.isdisjoint(Path(name).parts[:-1])


def check_includes(root: Path, path: Path) -> Iterator[str]:
    top = top_of(root, path)
    below = ROOMS[top]
    room, *rest = path.relative_to(root / top).parts
    name = path.relative_to(root).as_posix()
    if not rest or room not in below:
        yield f"{name}: not in a room that the table of layers names"
        return
    if path.suffix in {".cu", ".cuh"} and not needs_toolkit(name):
        yield f"{name}: CUDA sources stand in a folder cuda/"
    allowed = below[room] | {room}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{name}:{number}"
        foreign = re.match(r"\s*#\s*include\s*[<\"](pybind11|Python\.h|torch|ATen|c10/)", line)
        at_home = name.startswith(TORCH_FOLDERS) or room == "bindings"
        if foreign and (not at_home or (room == "bindings" and foreign.group(1) in TORCH)):
            at = f"bindings/ knows Python, {' and '.join(TORCH_FOLDERS)} torch too"
            yield f"{where}: {line.strip()}: only {at}"
        if MPI_INCLUDE.match(line) and not name.startswith(MPI_FOLDERS):
            yield f"{where}: {line.strip()}: only {' and '.join(MPI_FOLDERS)} know MPI"
        if TOOLKIT_INCLUDE.match(line) and not needs_toolkit(name):
            yield f"{where}: {line.strip()}: only cuda/ and nccl/ know the toolkit"
        found = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if found is None:
            continue
        target = found.group(1)
        if "/" not in target or ".." in target:
            yield f"{where}: write the include from {top}/ on: {target}"
        elif target.split("/")[0] not in allowed:
            yield f"{where}: {room} must not include {target.split('/')[0]}"
        elif needs_toolkit(target) and not needs_toolkit(name):
            yield f"{where}: {target} needs CUDA: include it in cuda/ or nccl/"


def check_rooms(root: Path, paths: list[Path]) -> Iterator[str]:
    """Folders hold few things; in a room a type is one, and its definition where its header is."""
    folders: dict[str, set[str]] = {}
    types: dict[tuple[str, str], str] = {}  # (room, type) -> the file that defines it
    homes: dict[tuple[str, str], str] = {}  # (room, type or function) -> stem of its header
    for path in paths:
        name = path.relative_to(root).as_posix()
        room = room_of(root, path)
        folders.setdefault(path.parent.relative_to(root).as_posix(), set()).add(path.stem)
        text = path.read_text(encoding="utf-8")
        for kind in re.findall(TYPE_DEFINED, text):
            other = types.setdefault((room, kind), name)
            if other != name:
                yield f"{name}: {room}::{kind} is defined in {other} too"
        if path.suffix in {".h", ".cuh"}:
            for kind in re.findall(TYPE_DEFINED, text) + re.findall(FUNCTION_DECLARED, text):
                homes.setdefault((room, kind), path.stem)
    for folder, things in folders.items():
        if len(things - {STAND_INS}) > MOST_IN_A_FOLDER:
            yield f"{folder}: {len(things)} things in one folder, at most {MOST_IN_A_FOLDER}"
    for path in paths:
        if path.suffix not in {".cpp", ".cu"} or path.stem == STAND_INS:
            continue
        name = path.relative_to(root).as_posix()
        room = room_of(root, path)
        text = re.sub(
            r"^namespace \{$.*?^\}  // namespace$", "", path.read_text("utf-8"), flags=re.M | re.S
        )
        for found in DEFINED.finditer(text):
            kind = found["owner"] or found["function"]
            home = homes.get((room, kind), path.stem)
            if home != path.stem and not kind.startswith(FACTORY):
                yield f"{name}: {kind} is declared in {home}.h and defined here"


def layer_of(module: str) -> int | None:
    for index, layer in enumerate(PYTHON_LAYERS):
        if module in layer:
            return index
    return None


def imports(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """(dotted module, line, lazy) for each import; those under TYPE_CHECKING are left out."""

    def visit(node: ast.AST, lazy: bool) -> Iterator[tuple[str, int, bool]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                yield from visit(child, lazy)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, lazy
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "." * node.level, node.lineno, lazy
            elif node.module == "gear":
                for alias in node.names:
                    yield f"gear.{alias.name}", node.lineno, lazy
            else:
                yield node.module or "", node.lineno, lazy
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, lazy)

    yield from visit(tree, False)


def check_imports(root: Path, path: Path) -> Iterator[str]:
    parts = path.relative_to(root / "gear").with_suffix("").parts
    name = path.relative_to(root).as_posix()
    own = parts[0]
    if own == "__init__":
        return
    own_layer = layer_of(own)
    if own_layer is None:
        yield f"{name}: not in the table of layers"
        return
    for module, line, lazy in imports(ast.parse(path.read_text(encoding="utf-8"))):
        head, *rest = module.split(".")
        where = f"{name}:{line}"
        if not head:
            yield f"{where}: write imports from gear on, not relative ones"
        elif head in FRAMEWORKS and not lazy and own not in FRAMEWORK_FOLDERS:
            yield f"{where}: {head} is imported only in {', '.join(sorted(FRAMEWORK_FOLDERS))}"
        elif head in FRAMEWORKS and not lazy and own in LAZY_FOLDERS:
            yield f"{where}: {head} is imported inside functions only in {own}"
        elif head == "gear":
            yield from check_import_of_gear(where, own, own_layer, rest)


def check_import_of_gear(where: str, own: str, own_layer: int, rest: list[str]) -> Iterator[str]:
    target = rest[0] if rest else ""
    target_layer = layer_of(target)
    if target_layer is None:
        # The face itself: `import gear`, `from gear import Schema`.
        face = layer_of(FACE)
        if face is not None and own_layer <= face:
            yield f"{where}: {own} is part of the face and must name the module it means"
    elif target != own and target_layer >= own_layer:
        yield f"{where}: {own} must not import {target}"


def check_of_its_own(root: Path, path: Path) -> Iterator[str]:
    """The package gear_mpi is installed without GEAR, too."""
    if path.suffix == ".py":
        for module, line, _ in imports(ast.parse(path.read_text(encoding="utf-8"))):
            if module.split(".")[0] == "gear":
                yield f"{path.relative_to(root).as_posix()}:{line}: gear_mpi must not import gear"


def check_circles(root: Path, paths: list[Path]) -> Iterator[str]:
    """No module of gear/ imports itself by way of others, imports inside functions included."""
    modules = {}
    for path in paths:
        parts = path.relative_to(root).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph = {
        name: imported_modules(ast.parse(path.read_text(encoding="utf-8")), set(modules)) - {name}
        for name, path in modules.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield f"gear: modules import each other in a circle: {' <- '.join(error.args[1])}"


def imported_modules(tree: ast.Module, modules: set[str]) -> set[str]:
    """Those of `modules` that an import names, by themselves or as what is taken from a package."""
    found = {module for module, _, _ in imports(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            taken = {f"{node.module}.{alias.name}" for alias in node.names}
            if taken <= modules:
                found = found - {str(node.module)} | taken
    return found & modules


def violations_in(root: Path) -> list[str]:
    violations: list[str] = []
    paths = list(source_files(root))
    violations += check_rooms(root, [p for p in paths if top_of(root, p)])
    python = [p for p in paths if p.is_relative_to(root / "gear") and p.suffix == ".py"]
    violations += check_circles(root, python)
    for path in paths:
        violations += check_name(root, path)
        top = path.relative_to(root).parts[0]
        if top_of(root, path):
            violations += check_includes(root, path)
        elif top == "gear" and path.suffix == ".py":
            violations += check_imports(root, path)
        elif top == "process_group" and path.parts[-2] == "gear_mpi":
            violations += check_of_its_own(root, path)
    return violations


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    violations = violations_in(root.resolve())
    for line in violations:
        print(line)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
