#!/usr/bin/env bash
# Step venv: the environment that the installation is, and what builds the rest in it.
# Sourced by build.sh.

venv_step() {
  local tools=(setuptools wheel packaging scikit-build-core pybind11 ninja)
  # The folder stays, with the build's state; a half-made environment does not.
  run rm -rf "$BUILD/bin" "$BUILD/lib" "$BUILD/lib64" "$BUILD/include" "$BUILD/pyvenv.cfg" "$RECORD/pip"
  run "$PYTHON" -m venv "$BUILD" ||
    fail "the environment could not be made with $PYTHON" "python3-venv and python3-dev are needed (Debian)"
  pinned_versions | write "$RECORD/constraints.txt"
  dry || cmake_will_do || tools+=(cmake)
  pip install "${tools[@]}" || fail "the tools that build the rest could not be installed"
}

# GEAR needs CMake 3.20; Horovod's third-party code refuses 4 and later unless told otherwise.
cmake_will_do() { cmake --version 2>/dev/null | grep -qE 'version 3\.(2[0-9]|3[0-9])'; }
