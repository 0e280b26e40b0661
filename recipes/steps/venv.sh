#!/usr/bin/env bash
# Step venv: the environment that the base is, and what builds the rest in it.
# Sourced by build.sh.

venv_step() {
  local tools=(setuptools wheel packaging scikit-build-core pybind11 ninja)
  # The folder stays, with the base's state; a half-made environment does not.
  run rm -rf "$LAYER/bin" "$LAYER/lib" "$LAYER/lib64" "$LAYER/include" "$LAYER/pyvenv.cfg" "$RECORD/pip"
  run "$PYTHON" -m venv "$LAYER" ||
    fail "the environment could not be made with $PYTHON" "python3-venv and python3-dev are needed (Debian)"
  if [ -n "$(site stand_on)" ]; then
    run "$LAYER/bin/python" "$SOURCE/recipes/stand_on.py" "$(site stand_on)" ||
      fail "the environment could not be made to stand on $(site stand_on)"
  fi
  pinned_versions | write "$RECORD/constraints.txt"
  dry || cmake_will_do || tools+=(cmake)
  pip install "${tools[@]}" || fail "the tools that build the rest could not be installed"
}

# GEAR needs CMake 3.20; Horovod's third-party code refuses 4 and later unless told otherwise.
cmake_will_do() { [[ $(first_line cmake --version) =~ version\ 3\.[23][0-9] ]]; }
