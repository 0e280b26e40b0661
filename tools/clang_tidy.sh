#!/usr/bin/env bash
# clang-tidy over the core as it is built without CUDA; .clang-tidy says what it looks for. A source that
# passed is not looked at again until it, a header, .clang-tidy or clang-tidy itself changes.
#
#   tools/clang_tidy.sh             all sources
#   tools/clang_tidy.sh SOURCE KEY  one of them, in the folder that the first form has made
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
build=build/tidy
mkdir -p "$build/passed"

if [ $# -eq 2 ]; then
  passed=$build/passed/$2-$(sha256sum <"$1" | cut -c 1-16)
  [ ! -e "$passed" ] || exit 0
  if ! clang-tidy -p "$build" --quiet "$1" >"$passed.log" 2>&1; then
    cat "$passed.log"
    exit 1
  fi
  mv "$passed.log" "$passed"
  exit 0
fi

# The flags of the sources are all that is wanted of this folder: nothing is built in it.
cmake -S . -B "$build" -DGEAR_BUILD_PYTHON=OFF -DGEAR_WITH_CUDA=OFF >"$build/configure.log" 2>&1 || {
  cat "$build/configure.log"
  exit 1
}
key=$({
  clang-tidy --version
  cat .clang-tidy "$build/compile_commands.json"
  find csrc -name '*.h' -print0 | sort -z | xargs -0 sha256sum
} | sha256sum | cut -c 1-16)
find "$build/passed" -type f ! -name "$key-*" -delete

# without_cuda.cpp has the arguments of the source that it stands in for, and leaves them unused.
python -c 'import json, sys; print(*(one["file"] for one in json.load(sys.stdin)), sep="\n")' \
  <"$build/compile_commands.json" | grep -v '/without_cuda\.cpp$' |
  xargs -P "$(nproc)" -I '{}' tools/clang_tidy.sh '{}' "$key"
