"""Gathers what an installation was made of, to install the same where there is no network.

    python3 recipes/wheelhouse.py GEAR_HOME FOLDER

GEAR_HOME is an installation that recipes/build.sh made on a machine of the same kind (processor,
Python) with a network; it has the hash of every package in it. In the site file of the
machines without a network, `wheelhouse = FOLDER` then replaces the network.

Passwords in URLs of its site file are not in the installation: have those of an index in ~/.netrc,
and set https_proxy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # also where PYTHONSAFEPATH is set

from manifest import downloads

SOURCES = Path(__file__).parent / "sources"  # what is built from source, pinned
OF_TORCH = ("torch", "torchvision", "torchaudio")  # what torch_index has


def fail(sentence: str) -> None:
    print(f"wheelhouse: {sentence}", file=sys.stderr)
    sys.exit(1)


def download(
    python: Path, folder: Path, index: str, proxy: str, requirements: list[str], *more: str
) -> None:
    """pip download of exact requirements with their hashes; nothing beyond them."""
    environment = dict(os.environ)
    environment.pop("PYTHONSAFEPATH", None)  # a setup.py may import what lies beside it
    index = index.replace("***@", "")
    if proxy and "***@" not in proxy:  # not as an option, which everybody on the machine could read
        environment |= {"https_proxy": proxy, "http_proxy": proxy}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(requirements) + "\n")
        file.flush()
        command = [python, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
        command += ["--dest", folder, "--requirement", file.name, *more]
        if index:
            command += ["--index-url", index]
        if subprocess.run(command, stdout=sys.stderr, env=environment).returncode:
            fail("pip could not fetch everything: its last lines above say what and why")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gear_home", type=Path, help="an installation")
    parser.add_argument("folder", type=Path, help="where to put the packages")
    arguments = parser.parse_args()
    try:
        text = (arguments.gear_home / "share/gear/manifest.json").read_text()
    except OSError as error:
        fail(f"no installation in {arguments.gear_home}: {error.strerror}: {error.filename}")
    base = arguments.gear_home / "base"
    if not base.is_dir():
        fail(f"{base} is missing: build the installation again, by the recipes that this came with")
    manifest = json.loads(text)
    site, python = manifest["site"], arguments.gear_home / "bin" / "python"
    arguments.folder.mkdir(parents=True, exist_ok=True)

    sources = {path.stem: path.read_text().strip() for path in SOURCES.glob("*.txt")}
    built = [sources[p["name"]] for p in manifest["packages"] if p["name"] in sources]
    # (index, options of pip) -> requirements. By pip's own reports: what was needed to build the
    # rest is in them too. What pip found as a source is wanted as that: there may be no wheel.
    wanted: dict[tuple[str, ...], list[str]] = {}
    for (name, version), found in downloads(base).items():
        if name not in sources:
            index = (site["torch_index"] if name in OF_TORCH else "") or site["pip_index"]
            is_wheel = str(found["source"]).endswith(".whl")
            form = ("--only-binary", ":all:") if is_wheel else ("--no-binary", name)
            wanted.setdefault((index, *form), []).append(
                f"{name}=={version} --hash=sha256:{found['sha256']}"
            )
    if built:
        # The tools that the sources need to name themselves are in the installation.
        wanted[site["pip_index"], "--no-binary", ":all:", "--no-build-isolation"] = built
    pins = (SOURCES.parents[1] / "requirements" / "site.txt").read_text().splitlines()
    cython = next(pin for pin in pins if pin.startswith("cython=="))
    if sources["mpi4py"] in built:  # needs it, and an earlier build's wheel leaves no report of it
        wanted[site["pip_index"], "--only-binary", "cython"] = [cython]
    for (index, *form), requirements in wanted.items():
        download(python, arguments.folder, index, site.get("proxy", ""), requirements, *form)
    files = [path for path in arguments.folder.iterdir() if path.is_file()]
    size = sum(path.stat().st_size for path in files) >> 20
    print(f"wheelhouse: {len(files)} packages, {size} MiB in {arguments.folder}")


if __name__ == "__main__":
    main()
