"""The layer check finds each kind of violation, in a small tree made for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[2] / "tools" / "check_layers.py"


def check(root: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, CHECK, root], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("csrc/store/shard.h", '#include "memory/region.h"\n#include "store/schema.h"\n'),
        (
            "csrc/bindings/writer.cpp",
            '#include <pybind11/pybind11.h>\n#include "store/writing/writer.h"\n',
        ),
        ("gear/buffer.py", "from gear import _core\nfrom gear.schema import Schema\n"),
        ("gear/buffer.py", "def loader():\n    from gear.loader import Loader\n"),
        ("csrc/plan/plan.h", '#include "select/selection.h"\n'),
        ("csrc/plan/cuda/plan.cu", '#include <cub/cub.cuh>\n#include "base/cuda/cuda.h"\n'),
        ("csrc/store/mirror/cuda/plan.cpp", '#include "base/cuda/cuda.h"\n'),
        ("csrc/transport/nccl/nccl.cpp", '#include "base/cuda/cuda.h"\n'),
        ("csrc/base/cuda/cuda.h", "#include <cuda_runtime_api.h>\n"),
        ("csrc/transport/mpi/send.cpp", "#include <mpi.h>\n"),
        ("process_group/src/engine/a.h", '#include "base/a.h"\n#include "ranks/a.h"\n'),
        ("process_group/src/torch/a.cpp", "#include <ATen/ATen.h>\n"),
        ("process_group/src/over_mpi/a.cpp", "#include <mpi.h>\n"),
        ("process_group/python/gear_mpi/a.py", "import torch\nfrom gear_mpi import b\n"),
        ("gear/loader.py", "def f():\n    import torch\n"),
        ("gear/loader.py", "if TYPE_CHECKING:\n    from gear.cli import app\n"),
        ("gear/train/app.py", "import torch\nimport gear\nfrom gear.train import loop\n"),
        ("gear/cli/train.py", "from gear.train.app import main\n"),
        ("gear/distributed/a.py", "def f():\n    from mpi4py import MPI\n"),
        ("gear/__init__.py", "from gear.buffer import ReplayBuffer\n"),
        ("build/utils.py", ""),
        (".venv/lib/common/helpers.py", ""),
    ],
)
def test_allowed(name: str, text: str, tmp_path: Path) -> None:
    write(tmp_path, name, text)
    assert check(tmp_path) == (0, "")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("csrc/base/log.h", '#include "store/schema.h"\n', ":1: base must not include store"),
        ("csrc/select/topk.cpp", '\n#include "plan/plan.h"\n', ":2: select must not include"),
        ("csrc/store/page.h", '#include "schema.h"\n', ":1: write the include from csrc/ on"),
        ("csrc/store/page.h", "#include <pybind11/numpy.h>\n", "only bindings/ knows Python"),
        ("csrc/bindings/a.cpp", "#include <torch/torch.h>\n", "only bindings/ knows Python"),
        ("csrc/store/page.h", "#include <cuda_runtime.h>\n", ":1: #include <cuda_runtime.h>: only"),
        ("csrc/store/page.cpp", '#include "base/cuda/a.h"\n', ":1: base/cuda/a.h needs CUDA"),
        ("csrc/store/page.h", '#include "base/cuda/a.h"\n', ":1: base/cuda/a.h needs CUDA"),
        ("csrc/store/page.cu", "", "CUDA sources stand in a folder cuda/"),
        ("csrc/transport/send.cpp", "#include <mpi.h>\n", ":1: #include <mpi.h>: only"),
        ("csrc/network/a.h", "", "not in a room that the table"),
        ("process_group/src/ranks/a.h", '#include "engine/a.h"\n', ":1: ranks must not include"),
        ("process_group/src/ranks/a.h", '#include "store/a.h"\n', ":1: ranks must not include"),
        ("process_group/src/engine/a.h", "#include <ATen/ATen.h>\n", "src/emu_torch/ torch too"),
        ("process_group/src/engine/a.h", "#include <mpi.h>\n", ":1: #include <mpi.h>: only"),
        ("process_group/python/gear_mpi/a.py", "import gear\n", ":1: gear_mpi must not import"),
        ("gear/schema.py", "from gear.buffer import X\n", ":1: schema must not import buffer"),
        ("gear/schema.py", "from gear import loader\n", ":1: schema must not import loader"),
        ("gear/loader.py", "import gear\n", ":1: loader is part of the face and must name"),
        ("gear/loader.py", "def f():\n    from gear.cli import app\n", "must not import cli"),
        ("gear/loader.py", "import torch.nn\n", ":1: torch is imported only in"),
        ("gear/distributed/a.py", "import torch\n", ":1: torch is imported inside functions only"),
        ("gear/cli/app.py", "from . import check\n", "write imports from gear on"),
        ("gear/surprise.py", "", "not in the table of layers"),
        ("gear/train/utils.py", "", "'utils' says nothing"),
        ("csrc/base/string_helpers.h", "", "'string_helpers' says nothing"),
        ("tests/common/a.py", "", "'common' says nothing"),
    ],
)
def test_refused(name: str, text: str, complaint: str, tmp_path: Path) -> None:
    write(tmp_path, name, text)
    code, output = check(tmp_path)
    assert code == 1
    assert output.startswith(name)
    assert complaint in output
    assert output.count("\n") == 1


def test_a_definition_away_from_its_header(tmp_path: Path) -> None:
    write(tmp_path, "csrc/plan/path.h", "class Path {\n  int a();\n};\nint name(Path path);\n")
    write(tmp_path, "csrc/plan/path.cpp", "int Path::a() {\n}\nint name(Path path) {\n}\n")
    write(tmp_path, "csrc/plan/without_cuda.cpp", "int Path::a() {\n}\n")
    write(tmp_path, "csrc/plan/cuda/path.cpp", "int Path::a() {\n}\n")
    assert check(tmp_path) == (0, "")
    write(tmp_path, "csrc/plan/plan.cpp", "int Path::a() {\n}\nint name(Path path) {\n}\n")
    code, output = check(tmp_path)
    assert code == 1
    assert output.splitlines() == [
        "csrc/plan/plan.cpp: Path is declared in path.h and defined here",
        "csrc/plan/plan.cpp: name is declared in path.h and defined here",
    ]


def test_a_factory_stands_with_what_it_makes(tmp_path: Path) -> None:
    write(tmp_path, "csrc/select/sampler.h", "int make_uniform(int items);\n")
    write(tmp_path, "csrc/select/uniform.cpp", "int make_uniform(int items) {\n}\n")
    assert check(tmp_path) == (0, "")


def test_two_types_of_one_name(tmp_path: Path) -> None:
    write(tmp_path, "csrc/group/a.cpp", "struct Part {\n};\n")
    write(tmp_path, "csrc/group/b.cpp", "struct Part::Inner {\n};\n")
    write(tmp_path, "csrc/plan/b.cpp", "struct Part {\n};\n")
    assert check(tmp_path) == (0, "")
    write(tmp_path, "csrc/group/cuda/c.cpp", "struct Part {\n};\n")
    code, output = check(tmp_path)
    assert code == 1
    assert output == "csrc/group/cuda/c.cpp: group::Part is defined in csrc/group/a.cpp too\n"


def test_a_folder_of_too_many_things(tmp_path: Path) -> None:
    for letter in "abcdefghijkl":
        write(tmp_path, f"csrc/store/{letter}.h", "")
        write(tmp_path, f"csrc/store/{letter}.cpp", "")
    write(tmp_path, "csrc/store/without_cuda.cpp", "")
    assert check(tmp_path) == (0, "")
    write(tmp_path, "csrc/store/m.h", "")
    assert check(tmp_path)[0] == 1


@pytest.mark.parametrize(
    "back",
    [
        "def f():\n    from gear.distributed.a import x\n",
        "def f():\n    from gear.distributed import a\n",
        "import gear.distributed.a\n",
    ],
)
def test_modules_that_import_each_other(back: str, tmp_path: Path) -> None:
    write(tmp_path, "gear/distributed/a.py", "from gear.distributed.b import y\n")
    write(tmp_path, "gear/distributed/b.py", "def y(): ...\n")
    assert check(tmp_path) == (0, "")
    write(tmp_path, "gear/distributed/b.py", back)
    code, complaints = check(tmp_path)
    assert code == 1
    assert "in a circle: gear.distributed." in complaints


@pytest.mark.parametrize("outputs", ["build", "dist", ".venv"])
def test_what_others_make_and_remove_meanwhile_is_not_looked_into(
    outputs: str, tmp_path: Path
) -> None:
    """As a site that is being built there. Names of more than PATH_MAX cannot be listed."""
    write(tmp_path, "gear/loader.py", "")
    inside = os.open(tmp_path, os.O_RDONLY)
    for name in (outputs, *["deep" * 60] * 20):
        os.mkdir(name, dir_fd=inside)
        below = os.open(name, os.O_RDONLY, dir_fd=inside)
        os.close(inside)
        inside = below
    os.close(inside)
    assert check(tmp_path) == (0, "")
