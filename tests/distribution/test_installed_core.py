"""What `cmake --install` gives without Python: a C++ program finds it, and stores steps."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from distribution.project import REPOSITORY, VERSION
from distribution.venv_program import by_venv

PROJECT = f"""
cmake_minimum_required(VERSION 3.20)
project(program LANGUAGES CXX)
find_package(gear {VERSION} EXACT REQUIRED)
add_executable(program main.cpp)
target_link_libraries(program PRIVATE gear::core)
if(GEAR_MPI_LIBRARY)
  file(CREATE_LINK ${{GEAR_MPI_LIBRARY}} ${{CMAKE_CURRENT_BINARY_DIR}}/libgear_mpi.so SYMBOLIC)
endif()
"""
MAIN = """
#include <cstdio>
#include <memory>
#include <vector>

#include "store/writing/writer.h"
#include "transport/mpi.h"

using namespace gear;

int main() {
  store::ShardOptions options;
  options.capacity = 100;
  auto shard =
      std::make_shared<store::Shard>(store::Schema({{"x", {}, base::DType::kF32}}), options);
  store::Writer writer(shard);
  const std::vector<float> rows(100, 0.0F);
  const std::byte* columns[] = {reinterpret_cast<const std::byte*>(rows.data())};
  writer.append(columns, rows.size(), std::vector<float>(rows.size(), 1.0F));
  writer.end_episode(store::EpisodeState::kTerminated, -1.0, {});
  const bool mpi = !transport::mpi_built_with().empty();
  if (mpi) {
    transport::make_mpi({});  // opens libgear_mpi.so
  }
  std::printf("%s: %zu steps, %s MPI\\n", GEAR_VERSION, rows.size(), mpi ? "with" : "without");
}
"""


@pytest.mark.slow  # compiles the core
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_program_finds_the_installed_core(tmp_path: Path) -> None:
    mpi = "ON" if shutil.which("mpicxx") else "OFF"
    options = ["GEAR_BUILD_PYTHON=OFF", "GEAR_WITH_CUDA=OFF", f"GEAR_WITH_MPI={mpi}"]
    options.append("GEAR_HEADERS_ONCE=ON")
    by_venv("cmake", "-S", REPOSITORY, "-B", tmp_path / "core", *(f"-D{each}" for each in options))
    by_venv("cmake", "--build", tmp_path / "core", "--parallel")
    by_venv("cmake", "--install", tmp_path / "core", "--prefix", tmp_path / "prefix")
    shutil.rmtree(tmp_path / "core")  # what is installed stands alone

    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "main.cpp").write_text(MAIN)
    place = f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}"
    by_venv("cmake", "-S", tmp_path, "-B", tmp_path / "build", place)
    by_venv("cmake", "--build", tmp_path / "build")
    said = by_venv(tmp_path / "build" / "program").splitlines()[-1]
    assert said == f"{VERSION}: 100 steps, {'with' if mpi == 'ON' else 'without'} MPI"
