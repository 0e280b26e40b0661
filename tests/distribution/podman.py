"""Podman as tests use it: images of its own below build/, on a Debian that debootstrap makes.

No registry is asked for an image, and no container is started, which needs rights that a test
machine may lack: what runs in an image is a RUN of podman's isolation `chroot`, by the image's user
in its folder. Packages come from where the machine's pip has them.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from distribution.project import REPOSITORY

PLACE = REPOSITORY / "build" / "containers"
TEMPORARY = PLACE / "tmp"  # and what is mounted as a cache
CONTEXT = PLACE / "context"
STORAGE = ["--root", f"{PLACE}/storage", "--runroot", f"{TEMPORARY}/run"]
STORAGE += ["--storage-driver", "overlay", "--cgroup-manager", "cgroupfs"]
# This isolation puts a host name of its own into no /etc/hosts, and torchrun looks for its address.
BUILD = ["--isolation", "chroot", "--uts", "host", "--pull=never"]
BASE = "localhost/debootstrap:bookworm"
CERTIFICATES = "/run/certificates.crt"  # in a build


def podman(*words: str, text: str | None = None) -> str:
    """What it says, both streams; while it runs, that is in build/containers/podman.log."""
    for folder in (TEMPORARY, CONTEXT):
        folder.mkdir(parents=True, exist_ok=True)
    log = PLACE / "podman.log"
    with log.open("w") as file:
        done = subprocess.run(
            ["podman", *STORAGE, *words],
            cwd=CONTEXT,
            env={**os.environ, "TMPDIR": str(TEMPORARY)},
            input=text,
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    said = log.read_text(errors="replace")
    assert done.returncode == 0, f"podman {' '.join(words)}: {said[-6000:]}"
    return said


def make_context() -> None:
    """CONTEXT: of the source what an image gets; its site file leaves the index to pip.conf."""
    shutil.rmtree(CONTEXT, ignore_errors=True)
    ignore = REPOSITORY / ".dockerignore"
    names = [line[1:] for line in ignore.read_text().splitlines() if line.startswith("!")]
    for name in [ignore.name, *names]:
        source, copy = REPOSITORY / name, CONTEXT / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            shutil.copy2(source, copy)
    site = CONTEXT / "recipes" / "sites" / "container-cpu.conf"
    text, changed = re.subn(r"^torch_index = .*\n", "", site.read_text(), flags=re.M)
    assert changed == 1
    site.write_text(text)


def make_base() -> None:
    """BASE: Debian 12, made once."""
    if BASE in podman("images", "--format", "{{.Repository}}:{{.Tag}}").split():
        return
    folder, packed = PLACE / "base", PLACE / "base.tar"
    shutil.rmtree(folder, ignore_errors=True)
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    command = ["debootstrap", "--variant=minbase", "bookworm", str(folder)]
    done = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    subprocess.run(["tar", "-C", folder, "-cf", packed, "."], check=True)
    podman("import", str(packed), BASE)
    shutil.rmtree(folder)
    packed.unlink()


def packages() -> list[str]:
    """Options of `podman build`: the machine's pip.conf as a secret, and the folders it names."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    values, options = {}, []
    # In this order those of the environment come last, and win.
    for line in sorted(listed.stdout.splitlines(), reverse=True):
        key, _, value = line.partition("=")
        values[key.rpartition(".")[2]] = str(ast.literal_eval(value))
    if "cert" in values:
        options += ["-v", f"{values['cert']}:{CERTIFICATES}:ro"]
        values["cert"] = CERTIFICATES
    for key in {"find-links", "constraint", "index-url", "extra-index-url"} & set(values):
        for path in re.findall(r"(?:(?<=\s)|^|file://)(/\S+)", values[key]):
            folder = path if key == "find-links" else str(Path(path).parent)
            options += ["-v", f"{folder}:{folder}:ro"]
    conf = TEMPORARY / "pip.conf"
    lines = [f"{key} = " + "\n  ".join(value.split()) for key, value in sorted(values.items())]
    conf.write_text("\n".join(["[global]", *lines, ""]))
    conf.chmod(0o600)
    return ["--secret", f"id=pip,src={conf}", *options]


def configuration(image: str) -> dict[str, Any]:
    """What the image says of its user, folder, commands."""
    return json.loads(podman("image", "inspect", image))[0]


def run_in(image: str, *command: str) -> str:
    """Runs the command behind the image's entry point; what podman and it say."""
    words = [*configuration(image)["Config"]["Entrypoint"], *command]
    text = f"FROM {image}\nRUN {json.dumps(words)}\n"
    return podman("build", *BUILD, "--no-cache", "--layers=false", "-f", "-", text=text)
