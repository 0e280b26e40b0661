#!/usr/bin/env bash
# NCCL: one for torch, Horovod and GEAR alike, seen through $LAYER/nccl/{include,lib}, whether it is
# torch's wheel, the site's, or built here. Sourced by the steps torch and horovod.

# Puts the site's NCCL into $LAYER/nccl, and before the one that torch brought.
nccl_in_place() {
  local home
  case $(site nccl) in
    off) return 0 ;;
    wheel) home=$(nccl_wheel) ;;
    source)
      nccl_build
      home=$LAYER/nccl
      ;;
    module) home=${NCCL_HOME:-${NCCL_ROOT:-${EBROOTNCCL:-}}} ;;
    *) home=$(site nccl) ;;
  esac
  nccl_view "$home"
  record_tool nccl "$(nccl_version)"
  if ! site_is nccl wheel; then nccl_for_torch; fi
}

# Where the package of pip's nvidia-nccl has it.
nccl_wheel() {
  if dry; then
    echo "$LAYER/lib/python*/site-packages/nvidia/nccl"
  else
    "$LAYER/bin/python" -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2>>"$LOG" ||
      fail "nccl = wheel, but torch brought no NCCL" \
        "the installed torch has no CUDA: set torch_index, or set nccl to the site's NCCL"
  fi
}

# The libraries of the NCCL in HOME, one a line: in lib or lib64, and where Debian has those of /usr.
nccl_libraries() { # home
  compgen -G "$1/lib*/libnccl.so*" || compgen -G "$1/lib/$(uname -m)-linux-gnu/libnccl.so*"
}

# Links include/ and lib/libnccl.so* of HOME into $LAYER/nccl.
nccl_view() { # home
  local home=$1 library view=$LAYER/nccl
  [ "$home" != "$view" ] || return 0
  run mkdir -p "$view/lib"
  run ln -sfn "$home/include" "$view/include"
  if dry; then
    run ln -sfn "$home/lib/libnccl.so.2" "$view/lib/libnccl.so.2"
  else
    while read -r library; do run ln -sfn "$library" "$view/lib/${library##*/}"; done < <(nccl_libraries "$home")
  fi
  # The wheel has no libnccl.so to link by.
  if dry || [ ! -e "$view/lib/libnccl.so" ]; then run ln -sfn libnccl.so.2 "$view/lib/libnccl.so"; fi
}

# torch loads the NCCL of its own package, by a path that it holds, and the first that a process loads
# is everybody's. So the site's takes its place there, if it is not older than torch needs. What the package
# says of that file's content goes, so that `gear check --manifest` does not miss it.
nccl_for_torch() {
  local library needs has record
  if dry; then
    run ln -sfn "$LAYER/nccl/lib/libnccl.so.2" "$(nccl_wheel)/lib/libnccl.so.2"
    return
  fi
  needs=$("$LAYER/bin/python" -c 'import torch; print("%d.%d.%d" % torch.cuda.nccl.version())' 2>>"$LOG") ||
    fail "torch does not say which NCCL it was built with" "the installed torch has no CUDA: set torch_index"
  has=$(nccl_version)
  [ "$(printf '%s\n' "$needs" "$has" | sort -V | head -n 1)" = "$needs" ] ||
    fail "NCCL $has of nccl = $(site nccl) is older than NCCL $needs, which torch was built with" \
      "load a later NCCL, or set nccl = wheel in the site file"
  library=$(nccl_wheel)/lib/libnccl.so.2
  run ln -sfn "$LAYER/nccl/lib/libnccl.so.2" "$library"
  for record in "${library%/nvidia/nccl/*}"/nvidia_nccl_*.dist-info/RECORD; do
    [ ! -f "$record" ] || run sed -i 's|^\(nvidia/nccl/lib/libnccl\.so\.2\),.*|\1,,|' "$record"
  done
}

# The version in nccl.h; 'none' without NCCL.
nccl_version() {
  local header=$LAYER/nccl/include/nccl.h
  if [ ! -f "$header" ]; then
    echo none
    return
  fi
  awk '/^#define NCCL_(MAJOR|MINOR|PATCH) / {v = v "." $3} END {print substr(v, 2)}' "$header"
}

# From NCCL's source, a .tar.gz or a folder. Profile release: optimised, with symbols stripped by NCCL's
# own build; debug: DEBUG=1 TRACE=1, so that NCCL_DEBUG=TRACE tells every call and a debugger sees lines.
nccl_build() {
  local source=$LAYER/work/nccl architecture options=(DEBUG=0 TRACE=0) gencode=
  if site_is nccl_profile debug; then options=(DEBUG=1 TRACE=1); fi
  for architecture in $(site cuda_architectures | tr ';' ' '); do
    gencode+=" -gencode=arch=compute_$architecture,code=sm_$architecture"
  done
  options+=("CUDA_HOME=$(site cuda_home)" "NVCC_GENCODE=${gencode# }")
  if [ -n "$(site nccl_functions)" ]; then options+=("ONLY_FUNCS=$(site nccl_functions)"); fi
  record_option nccl "${options[@]}" "profile=$(site nccl_profile)"
  run rm -rf "$source"
  run mkdir -p "$source"
  nccl_unpack "$(site nccl_source)" "$source"
  run make -C "$source" src.build "BUILDDIR=$source/build" "${options[@]}" ||
    fail "NCCL could not be compiled" "nccl = wheel in the site file takes the one that torch brings"
  run rm -rf "$LAYER/nccl"
  run mkdir -p "$LAYER/nccl"
  run cp -R "$source/build/include" "$source/build/lib" "$LAYER/nccl/"
}

nccl_unpack() { # source folder
  local from=$1 to=$2
  if [ -d "$from" ]; then
    run cp -R "$from/." "$to"
    return
  fi
  if [[ $from == *://* ]]; then
    run curl --fail --silent --show-error --location --output "$to.tar.gz" "$from" ||
      fail "NCCL's source could not be fetched from $from" \
        "fetch it yourself and set nccl_source to the path of the file, or set nccl = wheel"
    from=$to.tar.gz
  fi
  run tar -xzf "$from" -C "$to" --strip-components 1 ||
    fail "nccl_source = $(site nccl_source) could not be unpacked" \
      "give a .tar.gz of NCCL's source with one folder at its top, or that folder"
}
