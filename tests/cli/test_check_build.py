"""`gear check --build`: what is here, what is missing and costs what, what is here and broken."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

import gear
from gear.cli import app, check_build, network, probe

WORKING: dict[str, dict[str, Any]] = {
    "torch": {
        "version": "2.13.0+cu130",
        "cuda": "13.0",
        "backends": ["nccl", "gloo"],
        "nccl": "2.27.3",
        "gear_mpi": {"for": "torch-2.13.0+cu130, open-mpi-4.1.4"},
        "gear_emu": {"for": "torch-2.13.0+cu130"},
    },
    "horovod": {"version": "0.28.1", "mpi": True, "gloo": False, "nccl": True, "cuda": True},
    "deepspeed": {"version": "0.19.8", "operations": ["deepspeed_shm_comm"]},
    "mpi4py": {"version": "4.1.2", "library": "Open MPI v4.1.4"},
    "mpi_transport": {},
}
BUILT = {"cuda": "13.0", "cuda_architectures": "80 90", "mpi": "Open MPI v4.1.4"}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """A GPU site where everything works; tests change the answers."""
    answers = {name: dict(answer) for name, answer in WORKING.items()}
    info = gear._core.build_info() | BUILT
    monkeypatch.setattr(gear._core, "build_info", lambda: info)
    monkeypatch.setattr(probe, "ask", lambda names: {name: answers[name] for name in names})
    monkeypatch.setattr(
        check_build,
        "_version",
        lambda name: answers[name].get("version") if name in answers else None,
    )
    monkeypatch.setattr(check_build.ctypes, "CDLL", lambda name: None)
    offers = {
        "verbs": ("mlx5_0 port 1, RoCE, GID 3 ::ffff:10.0.0.1, MTU 4096", ""),
        "fabric": ("", "tcp on eth0 only"),
    }
    monkeypatch.setattr(network, "one_sided_offer", lambda kind: offers[kind])
    monkeypatch.setattr(check_build, "INFINIBAND", Path(__file__).parent)
    monkeypatch.setenv("COLUMNS", "200")
    return answers


def rows(
    capsys: pytest.CaptureFixture[str], code: int = 0
) -> dict[tuple[str, str], dict[str, str]]:
    assert app.main(["check", "--build", "--json"]) == code
    printed = json.loads(capsys.readouterr().out)
    assert printed["version"] == gear.__version__
    return {(row["area"], row["name"]): row for row in printed["findings"]}


def test_a_whole_site(
    capsys: pytest.CaptureFixture[str], site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_build, "INFINIBAND", Path("/nowhere"))
    info = gear._core.build_info()
    assert app.main(["check", "--build"]) == 0
    assert (
        capsys.readouterr().out
        == f"""\
GEAR {gear.__version__} in {Path(gear.__file__).parent}

Frameworks:
    [X] GEAR core {info["version"]}, {info["compiler"]}, {info["build_type"]}
    [X] PyTorch 2.13.0+cu130
    [X] Horovod 0.28.1
    [X] DeepSpeed 0.19.8, operations built: deepspeed_shm_comm
    [X] mpi4py 4.1.2

Controllers:
    [X] torch.distributed in PyTorch (nccl, gloo)
    [X] MPI in mpi4py (Open MPI v4.1.4), Horovod
    [X] gear_mpi for torch-2.13.0+cu130, open-mpi-4.1.4
    [X] gear_emu for torch-2.13.0+cu130
    [ ] Gloo of Horovod  no horovodrun --gloo, and no elastic runs (CVE-2024-10190)

Operations:
    [X] CUDA in GEAR core (13.0 for 80 90), PyTorch (13.0), Horovod
    [X] NCCL in PyTorch (2.27.3), Horovod
    [ ] ibverbs without an RDMA device  NCCL and MPI go over sockets between nodes
    [X] verbs mlx5_0 port 1, RoCE, GID 3 ::ffff:10.0.0.1, MTU 4096  {network.TAKEN}
    [ ] fabric tcp on eth0 only  rows of other nodes come by messages
    [X] MPI in GEAR core (Open MPI v4.1.4), Horovod
    [X] Gloo in PyTorch
"""
    )


def test_rdma_devices_are_named(
    capsys: pytest.CaptureFixture[str],
    site: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("mlx5_1", "mlx5_0"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(check_build, "INFINIBAND", tmp_path)
    row = rows(capsys)["operations", "ibverbs"]
    assert (row["status"], row["detail"]) == ("found", "with mlx5_0, mlx5_1")


def test_without_the_verbs_library(
    capsys: pytest.CaptureFixture[str], site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(check_build.ctypes, "CDLL", absent)
    row = rows(capsys)["operations", "ibverbs"]
    assert row["status"] == "missing"
    assert "rdma-core" in row["cost"]


def test_everything_missing_has_a_cost(
    capsys: pytest.CaptureFixture[str], site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.clear()
    info = gear._core.build_info() | {"cuda": "", "mpi": ""}
    monkeypatch.setattr(gear._core, "build_info", lambda: info)
    found = rows(capsys)
    del found["frameworks", "GEAR core"], found["operations", "ibverbs"]
    del found["operations", "verbs"]
    assert len(found) == 14
    assert {row["status"] for row in found.values()} == {"missing"}
    assert all(row["cost"] for row in found.values())
    assert "pip install" in found["frameworks", "PyTorch"]["cost"]


def test_a_part_that_only_others_have_is_missing(
    capsys: pytest.CaptureFixture[str], site: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = gear._core.build_info() | {"cuda": ""}
    monkeypatch.setattr(gear._core, "build_info", lambda: info)
    row = rows(capsys)["operations", "CUDA"]
    assert (row["status"], row["detail"]) == ("missing", "only in PyTorch (13.0), Horovod")
    assert "host memory" in row["cost"]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("torch", ("frameworks", "PyTorch")),
        ("horovod", ("frameworks", "Horovod")),
        ("deepspeed", ("frameworks", "DeepSpeed")),
        ("mpi4py", ("frameworks", "mpi4py")),
        ("mpi_transport", ("operations", "MPI")),
    ],
)
def test_what_is_installed_and_broken_is_exit_code_1(
    name: str,
    place: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    site: dict[str, Any],
) -> None:
    site[name]["error"] = "ImportError: libmpi.so.40: cannot open shared object file"
    row = rows(capsys, code=1)[place]
    assert row["status"] == "broken"
    assert "libmpi.so.40" in row["cost"]
    assert app.main(["check", "--build"]) == 1
    assert f"[!] {place[1]} " in capsys.readouterr().out


def test_gear_mpi_that_is_not_built_or_does_not_load(
    capsys: pytest.CaptureFixture[str], site: dict[str, Any]
) -> None:
    site["torch"]["gear_mpi"] = {"for": ""}
    row = rows(capsys)["controllers", "gear_mpi"]
    assert row["status"] == "missing"
    assert "tools/c10d.sh builds it" in row["cost"]
    site["torch"]["gear_mpi"] = {"for": "torch-2, mpich-4", "error": "ImportError: libmpich.so.12"}
    row = rows(capsys, code=1)["controllers", "gear_mpi"]
    assert (row["status"], row["detail"]) == ("broken", "for torch-2, mpich-4 does not load")
    assert row["cost"].startswith("ImportError: libmpich.so.12: load the module of that MPI")


def test_gear_emu_that_is_not_built_or_does_not_load(
    capsys: pytest.CaptureFixture[str], site: dict[str, Any]
) -> None:
    site["torch"]["gear_emu"] = {"for": ""}
    row = rows(capsys)["controllers", "gear_emu"]
    assert row["status"] == "missing"
    assert "tools/c10d.sh --emulator builds it" in row["cost"]
    site["torch"]["gear_emu"] = {"for": "torch-2", "error": "ImportError: libtorch.so"}
    row = rows(capsys, code=1)["controllers", "gear_emu"]
    assert (row["status"], row["detail"]) == ("broken", "for torch-2 does not load")


def test_a_package_of_a_venv_that_does_not_import_is_named_as_such(
    capsys: pytest.CaptureFixture[str],
    site: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    site["torch"]["error"] = "ImportError: libtorch.so"
    try:
        torch = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("torch is not installed")
    place = Path(str(torch.locate_file(""))).resolve()
    for home, said in ((tmp_path, True), (place.parents[2], False), (None, False)):
        monkeypatch.delenv("GEAR_HOME", raising=False)
        if home:
            monkeypatch.setenv("GEAR_HOME", str(home))
        cost = rows(capsys, code=1)["frameworks", "PyTorch"]["cost"]
        assert cost.startswith("ImportError: libtorch.so")
        assert (f"this is not the module's, but that in {place}" in cost) is said


def test_horovod_with_gloo_is_warned_of(
    capsys: pytest.CaptureFixture[str], site: dict[str, Any]
) -> None:
    site["horovod"]["gloo"] = True
    row = rows(capsys)["controllers", "Gloo of Horovod"]
    assert row["status"] == "found"
    assert "CVE-2024-10190" in row["cost"]


def test_home_is_the_module_s_only_where_gear_is(
    capsys: pytest.CaptureFixture[str],
    site: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = Path(gear.__file__).parent
    (tmp_path / "link").symlink_to(package.parent)
    for home, shown in ((tmp_path / "link", tmp_path / "link"), (tmp_path, package)):
        monkeypatch.setenv("GEAR_HOME", str(home))
        assert app.main(["check", "--build"]) == 0
        assert capsys.readouterr().out.startswith(f"GEAR {gear.__version__} in {shown}\n")


@pytest.mark.mpi
def test_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys)
    for package, name in (("torch", "PyTorch"), ("mpi4py", "mpi4py")):
        row = found["frameworks", name]
        assert row["status"] == "found"
        assert row["detail"] == importlib.import_module(package).__version__


@pytest.mark.parametrize("options", [["--build", "--measure"], ["--build", "--manifest"]])
def test_one_kind_of_check_at_a_time(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(["check", *options]) == 2
    assert capsys.readouterr().err.startswith("gear: [cli] --measure, --build and --manifest")
