"""A small library with the build interface of NCCL's source.

`make src.build` takes BUILDDIR, DEBUG, TRACE, CUDA_HOME, NVCC_GENCODE and ONLY_FUNCS, as NCCL's own
makefile does, and leaves include/nccl.h and lib/libnccl.so.<version> with its links. The library
says by `ncclGetVersion` which it is, and by `builtWith` what it was compiled with.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

HEADER = """\
#pragma once
#define NCCL_MAJOR {major}
#define NCCL_MINOR {minor}
#define NCCL_PATCH {patch}
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE ({major} * 10000 + {minor} * 100 + {patch})
int ncclGetVersion(int* version);
const char* builtWith(void);
"""
SOURCE = """\
#include "nccl.h"
int ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return 0;
}
const char* builtWith(void) { return BUILT_WITH; }
"""
MAKEFILE = """\
.PHONY: src.build
BUILDDIR ?= $(abspath ./build)
CUDA_HOME ?= /usr/local/cuda
DEBUG ?= 0
TRACE ?= 0
VERSION := {version}
LIB := $(BUILDDIR)/lib
ifeq ($(DEBUG),0)
FLAGS := -O2 -s
else
FLAGS := -O0 -g
endif
WITH := DEBUG=$(DEBUG) TRACE=$(TRACE) CUDA_HOME=$(CUDA_HOME) $(NVCC_GENCODE) [$(ONLY_FUNCS)]

src.build:
\tmkdir -p $(BUILDDIR)/include $(LIB)
\tcp nccl.h $(BUILDDIR)/include/
\t$(CC) -shared -fPIC $(FLAGS) '-DBUILT_WITH="$(WITH)"' -Wl,-soname,libnccl.so.2 \\
\t  -o $(LIB)/libnccl.so.$(VERSION) nccl.c
\tln -sf libnccl.so.$(VERSION) $(LIB)/libnccl.so.2
\tln -sf libnccl.so.2 $(LIB)/libnccl.so
"""
ASKS = """\
#include <stdio.h>
#include "nccl.h"
int main(void) {
  int version = 0;
  ncclGetVersion(&version);
  printf("%d.%d.%d %s\\n", version / 10000, version / 100 % 100, version % 100, builtWith());
}
"""


def write_source(folder: Path, version: str) -> Path:
    """The source tree of that version; `folder` is new."""
    folder.mkdir(parents=True)
    major, minor, patch = version.split(".")
    (folder / "nccl.h").write_text(HEADER.format(major=major, minor=minor, patch=patch))
    (folder / "nccl.c").write_text(SOURCE)
    (folder / "Makefile").write_text(MAKEFILE.replace("{version}", version))
    return folder


def build(home: Path, version: str, *, library: str = "lib") -> Path:
    """Compiled in `home`/include and `home`/`library`, as a site or a wheel has it."""
    source = write_source(home.with_name(f"{home.name}-source"), version)
    subprocess.run(
        ["make", "-s", "-C", source, "src.build", f"BUILDDIR={home}"],
        check=True,
        capture_output=True,
    )
    if library != "lib":
        built = (home / "lib").rename(home / "built")
        (home / library).parent.mkdir(exist_ok=True)
        built.rename(home / library)
    return home


def linked_against(view: Path, folder: Path) -> str:
    """Of a program that is compiled by `view`/include and linked by `view`/lib: the version of the
    library that it runs with, and what that was compiled with."""
    (folder / "asks.c").write_text(ASKS)
    program = folder / "asks"
    flags = [f"-I{view}/include", f"-L{view}/lib", f"-Wl,-rpath,{view}/lib", "-lnccl"]
    subprocess.run(["cc", folder / "asks.c", "-o", program, *flags], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout.strip()
