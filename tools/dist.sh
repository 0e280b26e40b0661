#!/usr/bin/env bash
# What a release consists of, in dist/: the tarball (the sdist), wheels made from it, a bill of materials, and the
# checksums of all. The same commit gives the same bytes.
#
#   tools/dist.sh [--kind=KIND] [--python=VERSION]... [--machine=MACHINE] [--to=FOLDER]
#
# KIND: cpu, cuda or sdist (the tarball alone); without it cpu, and cuda where there is an nvcc.
# VERSION: 3.10 to 3.14; without it each of them that is on this machine (tools/find_python.sh).
# MACHINE: x86_64 or aarch64; without it this one's. A cpu wheel for the other needs its g++
# (on Debian g++-aarch64-linux-gnu, g++-x86-64-linux-gnu).
#
# Everything comes from the commit: changes that are not committed are left out. Wheels are built without an
# index, from the tarball and a folder with what pyproject.toml requires for building; load with glibc 2.28
# (cmake/old_glibc.cmake), and hold no MPI, which is a site's own. A wheel that is too large, or that auditwheel does
# not pass, is an error. A wheel with CUDA has +cu and CUDA's version after GEAR's own.
set -euo pipefail
cd "$(dirname "$0")/.."

glibc=2.28
declare -A limit_mb=([cpu]=6 [cuda]=25)
kinds=()
pythons=()
machine=$(uname -m)
to=$PWD/dist
say() { echo "dist: $*"; }
die() { echo "dist: $*" >&2; exit 1; }
wrong() { echo "dist: $*" >&2; exit 2; }
for argument in "$@"; do
  value=${argument#*=}
  case $argument in
    --kind=cpu | --kind=cuda | --kind=sdist) kinds+=("$value") ;;
    --python=3.1[01234]) pythons+=("$value") ;;
    --machine=x86_64 | --machine=aarch64) machine=$value ;;
    --to=?*) to=$(realpath -m "$value") ;;
    *) wrong "unknown '$argument': --kind=cpu, cuda or sdist, --python=3.10 to 3.14, --machine=x86_64 or aarch64, --to=FOLDER are allowed" ;;
  esac
done
if [ ${#kinds[@]} = 0 ]; then
  kinds=(cpu)
  if [ "$machine" != "$(uname -m)" ]; then say "no wheels with CUDA: those are not built for another machine"
  elif tools/find_nvcc.sh >/dev/null; then kinds+=(cuda)
  else say "no wheels with CUDA: no nvcc here"; fi
fi
compiler=g++ package=g++
if [ "$machine" != "$(uname -m)" ]; then
  [[ " ${kinds[*]} " != *" cuda "* ]] || wrong "a wheel with CUDA is built on its own kind of machine: this is $(uname -m), asked for $machine"
  compiler=$machine-linux-gnu-g++ package=g++-${machine//_/-}-linux-gnu
fi
if [ "${kinds[*]}" != sdist ]; then
  command -v "$compiler" >/dev/null ||
    die "no $compiler here, which wheels for $machine need: on Debian apt-get install $package"
  for header in infiniband/verbs.h rdma/fabric.h; do
    [ -f "/usr/include/$header" ] ||
      die "no /usr/include/$header here, which wheels need: on Debian apt-get install libibverbs-dev libfabric-dev"
  done
fi
[[ $PWD != *[[:space:]]* ]] || die "$PWD has a space in it, which compilers' options do not bear: clone to another folder"
git rev-parse --git-dir >/dev/null 2>&1 || die "this is no git clone: a release is made from a commit"
git diff --quiet HEAD || say "changes that are not committed are left out"

export SOURCE_DATE_EPOCH=315532800 # 1980-01-01, the first day of zip: bytes depend on contents alone
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
umask 022
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
name=gear_replay-$version
work=$PWD/build/dist
mkdir -p "$work" "$to"
exec 9>"$work/lock"
flock 9

# ---- tools ----

tools=$work/tools
make_tools() {
  local key
  key=$(echo "$tools" | cat - requirements/dist.txt requirements/constraints.txt | sha256sum)
  [ "$(cat "$tools/key" 2>/dev/null)" = "$key" ] && return
  rm -rf "$work/requirements"
  say "installing requirements/dist.txt in build/dist/tools"
  rm -rf "$tools"
  "$(tools/find_python.sh)" -m venv "$tools"
  "$tools/bin/pip" install -qq -r requirements/dist.txt -c requirements/constraints.txt build scikit-build-core pybind11
  printf '%s\n' "$key" >"$tools/key"
}

# ---- the tarball ----

# pyproject.toml says what is left out of it (sdist.exclude).
make_tarball() {
  local before other
  for other in "$to"/gear_replay-*; do # of another version
    case $other in "$to/$name".* | "$to/$name"[-+]*) ;; *) rm -f "$other" ;; esac
  done
  before=$(sha256sum "$to/$name.tar.gz" 2>/dev/null) || before=none
  rm -rf "$work/commit"
  mkdir "$work/commit"
  git archive HEAD | tar -x -C "$work/commit"
  "$tools/bin/python" -m build --sdist --no-isolation --outdir "$to" "$work/commit" >"$work/sdist.log" 2>&1 ||
    { cat "$work/sdist.log" >&2; die "the tarball could not be made"; }
  rm -rf "$work/commit"
  if [ "$before" != "$(sha256sum "$to/$name.tar.gz")" ]; then rm -f "$to"/gear_replay-*.whl; fi # another commit's
}

# ---- wheels ----

# Where wheels of that kind are built: one folder for all Pythons, so that the core is compiled once for a tarball.
unpack() { # kind
  local source=$work/$1-$machine/source key
  key=$({
    cat "$to/$name.tar.gz" tools/dist.sh "$tools/key"
    "$compiler" --version
    [ "$1" = cpu ] || "$(tools/find_nvcc.sh)" --version
  } | sha256sum)
  [ "$(cat "$work/$1-$machine/key" 2>/dev/null)" != "$key" ] || return 0
  rm -rf "$work/$1-$machine"
  mkdir -p "$source"
  printf '%s\n' "$key" >"$work/$1-$machine/key"
  tar -xzf "$to/$name.tar.gz" -C "$source" --strip-components 1
  [ "$1" = cpu ] || sed -i "s/^version = .*/version = \"$(version_of cuda)\"/" "$source/pyproject.toml"
}

version_of() { # kind
  local cuda
  if [ "$1" = cpu ]; then echo "$version"; return; fi
  cuda=$("$(tools/find_nvcc.sh)" --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\),.*/\1\2/p')
  echo "$version+cu$cuda"
}

# What pip needs to build, from the index; afterwards there is none.
fetch_requirements() { # python
  rm -rf "$work/venv"
  "$1" -m venv "$work/venv" # a system's Python need not have pip
  "$work/venv/bin/pip" download -qq -d "$work/requirements" -c requirements/constraints.txt \
    scikit-build-core pybind11 ninja cmake || die "what builds a wheel could not be fetched; what pip said is above"
}

options_of() { # kind
  local source=$work/$1-$machine/source
  echo "-DGEAR_GLIBC=$glibc" "-DGEAR_ZIG=$("$tools/bin/python" -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__) + "/zig")')"
  echo -DGEAR_WITH_MPI=OFF -DGEAR_WITH_VERBS=ON -DGEAR_WITH_FABRIC=ON -DGEAR_HEADERS_ONCE=ON
  echo "-DCMAKE_CXX_COMPILER=$(command -v "$compiler")" "-DCMAKE_CXX_FLAGS=-ffile-prefix-map=$source=gear"
  if [ "$1" = cuda ]; then
    echo -DGEAR_WITH_CUDA=ON "-DCMAKE_CUDA_FLAGS=-Xcompiler=-ffile-prefix-map=$source=gear"
  else
    echo -DGEAR_WITH_CUDA=OFF
  fi
  if [ "$machine" != "$(uname -m)" ]; then
    # These two are of Linux, not of a machine; what else is in /usr/include is this one's.
    mkdir -p "$work/include"
    ln -sfn /usr/include/infiniband /usr/include/rdma "$work/include/"
    echo -DCMAKE_SYSTEM_NAME=Linux "-DCMAKE_SYSTEM_PROCESSOR=$machine" "-DCMAKE_STRIP=$(command -v "${compiler%g++}strip")"
    echo "-DGEAR_VERBS_INCLUDE_DIR=$work/include" "-DGEAR_FABRIC_INCLUDE_DIR=$work/include"
  fi
}

# Of another machine's Python the name is known, and the headers are this one's: for one version of Python they differ
# in nothing that an extension sees.
as_of_machine() { # python
  [ "$machine" != "$(uname -m)" ] || return 0
  local suffix
  suffix=$("$1" -c 'import sys; print(".cpython-%d%d" % sys.version_info[:2])')-$machine-linux-gnu.so
  export _PYTHON_HOST_PLATFORM=linux-$machine SETUPTOOLS_EXT_SUFFIX=$suffix
  CMAKE_ARGS+=" -DPYTHON_MODULE_EXTENSION=$suffix -DPYTHON_MODULE_DEBUG_POSTFIX="
}

make_wheel() { # kind python, in a shell of its own
  local place=$work/$1-$machine log=$work/wheel.log raw wheel bytes
  CMAKE_ARGS=$(options_of "$1" | xargs)
  as_of_machine "$2"
  export CMAKE_ARGS
  export CUDACXX
  if [ "$1" = cuda ]; then CUDACXX=$(tools/find_nvcc.sh); fi
  rm -rf "$place/raw" "$place/venv"
  "$2" -m venv "$place/venv"
  "$place/venv/bin/pip" wheel --no-index --find-links "$work/requirements" --no-deps -w "$place/raw" \
    --config-settings "build-dir=$place/build" "$place/source" >"$log" 2>&1 || { cat "$log" >&2; die "the wheel could not be built"; }
  raw=("$place"/raw/*.whl)
  PATH=$tools/bin:$PATH "$tools/bin/auditwheel" repair --only-plat -w "$place/raw/audited" "${raw[0]}" >"$log" 2>&1 || { cat "$log" >&2; die "auditwheel does not pass ${raw[0]##*/}"; }
  wheel=("$place"/raw/audited/*.whl)
  bytes=$(stat -c %s "${wheel[0]}")
  [ "$bytes" -le $((limit_mb[$1] * 1000000)) ] || die "${wheel[0]##*/} has $bytes bytes, more than ${limit_mb[$1]} MB"
  "$tools/bin/auditwheel" show "${wheel[0]}" >"$log" 2>&1
  say "${wheel[0]##*/}: $((bytes / 1000)) kB; auditwheel: $(tr '\n' ' ' <"$log" | sed -nE 's/.*following platform tag: "([^"]*)".*/\1/p')"
  mv "${wheel[0]}" "$to/"
}

make_tools
make_tarball
say "$name.tar.gz: $(($(stat -c %s "$to/$name.tar.gz") / 1000)) kB, sha256 $(sha256sum "$to/$name.tar.gz" | cut -d' ' -f1)"
[ ${#pythons[@]} -gt 0 ] && asked=yes || asked=
[ -n "$asked" ] || pythons=(3.10 3.11 3.12 3.13 3.14)
made=0
for kind in "${kinds[@]}"; do
  [ "$kind" != sdist ] || continue
  unpack "$kind"
  for python in "${pythons[@]}"; do
    if ! found=$(tools/find_python.sh "$python"); then
      [ -z "$asked" ] || die "no Python $python with venv and headers on this machine"
      say "no Python $python on this machine: its wheel ($kind) is not built"
      continue
    fi
    fetch_requirements "$found"
    (make_wheel "$kind" "$found")
    made=$((made + 1))
  done
done
if [ "${kinds[*]}" != sdist ] && [ "$made" = 0 ]; then die "no wheel: no Python 3.10 to 3.14 with venv and headers here"; fi
"$tools/bin/python" tools/bill_of_materials.py "$to"
(
  cd "$to"
  find . -maxdepth 1 -name 'gear_replay-*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum -- >SHA256SUMS.new
  mv SHA256SUMS.new SHA256SUMS
)
say "checksums in ${to/#$PWD\//}/SHA256SUMS"
