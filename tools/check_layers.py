"""The layer check of `make lint`: what may include or import what, file names, and file lengths.

Usage: check_layers.py [ROOT]; the default is this repository. Exit 1 and one line per violation.
The rules are the tables below; docs/architecture.md says why.
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# csrc/: a folder may include itself and everything that it lists.
CPP_BELOW = {
    "base": set(),
    "memory": {"base"},
    "store": {"base", "memory"},
    "ingest": {"base", "memory", "store"},
    "select": {"base", "memory", "store"},
    "transport": {"base", "memory"},
    "collect": {"base", "memory", "store", "select", "transport"},
    "bindings": {"base", "memory", "store", "ingest", "select", "transport", "collect"},
}

# What is compiled only with CUDA: CMake's lists go by these names.
CUDA_SOURCE = re.compile(r"(?!.*/without_cuda\.cpp$).*(\.cu|\.cuh|_cuda\.cpp)$")
CUDA_DOOR = "csrc/base/cuda.h"  # the one header that opens the CUDA toolkit to others
TOOLKIT_INCLUDE = re.compile(
    r"\s*#\s*include\s*<(cuda|cub/|thrust/|nvtx3/|cooperative_groups|nvml|nv/|driver_types)"
)

# What goes into libgear_mpi.so: CMake's lists go by this name.
MPI_SOURCE = re.compile(r".*_mpi\.(h|cpp)$")
MPI_INCLUDE = re.compile(r"\s*#\s*include\s*[<\"]mpi(-ext)?\.h")

# gear/: a module or package imports only what stands on an earlier line, and itself. Imports inside
# functions count; those under TYPE_CHECKING do not.
PYTHON_LAYERS = [
    {"_core", "namesake"},
    {"errors"},
    {"arguments", "device", "frameworks", "log"},
    {"arrays", "episode", "rate_limit", "schema", "samplers", "statistics"},
    {"batch", "distributed", "window", "writer"},
    {"loader", "checkpoint"},
    {"buffer"},
    {"datasets"},
    {"integrations"},
    {"train"},
    {"cli"},
]
FACE = "buffer"  # up to this layer, modules name each other; those above may `import gear`

FRAMEWORKS = {"torch", "deepspeed", "horovod", "mpi4py"}
FRAMEWORK_FOLDERS = {"distributed", "integrations", "train"}
LAZY_FOLDERS = {
    "distributed"
}  # part of the face, which imports no framework: inside functions only

BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "handler", "misc"}

MAX_LINES = 400
LONGER_FILES: dict[str, str] = {}  # path -> reason


def source_files(root: Path) -> Iterator[Path]:
    """Source files of the tree, outputs and hidden folders left out."""
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if parts[0] in {"build", "dist"} or any(p.startswith(".") for p in parts):
            continue
        if path.is_file() and path.suffix in {".py", ".h", ".cpp", ".cu", ".cuh", ".sh"}:
            yield path


def check_name_and_length(root: Path, path: Path) -> Iterator[str]:
    name = path.relative_to(root).as_posix()
    for part in Path(name).with_suffix("").parts:
        if BANNED_NAMES & set(part.split("_")):
            yield f"{name}: '{part}' says nothing about what is in it"
    lines = len(path.read_text(encoding="utf-8").splitlines())
    if lines > MAX_LINES and name not in LONGER_FILES:
        yield f"{name}: {lines} lines (at most {MAX_LINES}, or an entry with a reason)"


def check_includes(root: Path, path: Path) -> Iterator[str]:
    folder, *rest = path.relative_to(root / "csrc").parts
    name = path.relative_to(root).as_posix()
    if not rest or folder not in CPP_BELOW:
        yield f"{name}: not in a folder that the table of layers names"
        return
    allowed = CPP_BELOW[folder] | {folder}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        foreign = re.match(r"\s*#\s*include\s*[<\"](pybind11|Python\.h|torch)", line)
        if foreign and (folder != "bindings" or foreign.group(1) == "torch"):
            yield f"{name}:{number}: {line.strip()}: only bindings/ knows Python, none torch"
        if MPI_INCLUDE.match(line) and not MPI_SOURCE.match(name):
            yield f"{name}:{number}: {line.strip()}: only *_mpi.h and *_mpi.cpp know MPI"
        found = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if found is None:
            continue
        target = found.group(1).split("/")[0]
        if "/" not in found.group(1) or ".." in found.group(1):
            yield f"{name}:{number}: write the include from csrc/ on: {found.group(1)}"
        elif target not in allowed:
            yield f"{name}:{number}: {folder} must not include {target}"


def own_includes(path: Path) -> list[tuple[int, str]]:
    """(line, path from csrc/ on) of every include of a file of this tree."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = ((n, re.match(r'\s*#\s*include\s*"([^"]+)"', line)) for n, line in enumerate(lines, 1))
    return [(number, match.group(1)) for number, match in found if match]


def check_cuda(root: Path, paths: list[Path]) -> Iterator[str]:
    """The toolkit stays behind CUDA sources, so that a build without CUDA needs none of it."""
    includes = {p.relative_to(root / "csrc").as_posix(): own_includes(p) for p in paths}
    # Headers that lead to the door, however far.
    opened = {CUDA_DOOR.removeprefix("csrc/")}
    while True:
        more = {
            name
            for name, targets in includes.items()
            if name.endswith((".h", ".cuh")) and any(t in opened for _, t in targets)
        }
        if more <= opened:
            break
        opened |= more
    for path in paths:
        name = path.relative_to(root).as_posix()
        if CUDA_SOURCE.match(name):
            continue
        if name != CUDA_DOOR:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if TOOLKIT_INCLUDE.match(line):
                    yield f"{name}:{number}: {line.strip()}: only CUDA sources and {CUDA_DOOR} may"
        if path.suffix == ".cpp":
            for number, target in includes[name.removeprefix("csrc/")]:
                if target in opened or target.endswith(".cuh"):
                    yield f"{name}:{number}: {target} needs CUDA: include it in *_cuda.cpp or *.cu"


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
    violations += check_cuda(root, [p for p in paths if p.is_relative_to(root / "csrc")])
    python = [p for p in paths if p.is_relative_to(root / "gear") and p.suffix == ".py"]
    violations += check_circles(root, python)
    for path in paths:
        violations += check_name_and_length(root, path)
        top = path.relative_to(root).parts[0]
        if top == "csrc":
            violations += check_includes(root, path)
        elif top == "gear" and path.suffix == ".py":
            violations += check_imports(root, path)
    return violations


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    violations = violations_in(root.resolve())
    for line in violations:
        print(line)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
