"""recipes/containers: what is seen without an image; test_container_image.py builds one."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from distribution.project import REPOSITORY, VERSION
from distribution.shells import MODULE_TOOLS, start_up_folder

CONTAINERS = REPOSITORY / "recipes" / "containers"
DOCKERFILE = (CONTAINERS / "Dockerfile").read_text()
DEFINITION = (CONTAINERS / "gear.def").read_text()
IGNORE = (REPOSITORY / ".dockerignore").read_text().splitlines()
CONTEXT = [line[1:] for line in IGNORE if line.startswith("!")]
KINDS = ("cpu", "cuda")


def stage(name: str) -> list[str]:
    """The instructions of a stage of the Dockerfile, each in one line."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.M))
    found = re.search(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", text, re.M | re.S)
    assert found is not None, name
    return [line for line in found[1].splitlines() if line]


def arguments(text: str) -> dict[str, str]:
    return dict(re.findall(r"^(?:ARG|\s+)\s*([A-Z_]+)=(\S+)$", text, re.M))


def dry(script: str, *words: str) -> list[str]:
    """The commands that a script of the recipe would run."""
    command = [CONTAINERS / script, *words, "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_context_is_what_the_build_reads(tmp_path: Path) -> None:
    """Less, and an image lacks a file; more, and a change of a text makes all of it anew."""
    inputs = REPOSITORY / "recipes" / "inputs.sh"
    files = subprocess.run(
        ["bash", "-c", f'. "{inputs}"; source_files | tr "\\0" "\\n"'],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert len(files) > 100
    assert [
        file for file in files if not any(Path(file).is_relative_to(one) for one in CONTEXT)
    ] == []
    read = {one for one in CONTEXT for file in files if Path(file).is_relative_to(one)}
    assert set(CONTEXT) - read == {"LICENSE", "README.md"}  # for the wheel
    assert [one for one in CONTEXT if not (REPOSITORY / one).exists()] == []


def test_apptainer_copies_the_same_files() -> None:
    copied = re.search(r"%files\n(.*?)\n\n", DEFINITION, re.S)[1]
    pairs = [line.split() for line in copied.splitlines()]
    assert [source for source, _ in pairs] == CONTEXT
    assert [place for _, place in pairs] == [f"/source/{one}" for one in CONTEXT]


def test_apptainer_runs_the_steps_of_the_dockerfile() -> None:
    steps = [" ".join(block.split()) for block in re.findall(r"%post\n(.*?)\n\n", DEFINITION, re.S)]
    runs = [
        re.sub(r"--mount=\S+ +", "", line.removeprefix("RUN "))
        for name in ("cpu-build", "cpu")
        for line in stage(name)
        if line.startswith("RUN ")
    ]
    assert [step.replace("{{ SITE }}", "${SITE}") for step in steps] == runs
    assert "\n    /opt/gear /opt\n" in DEFINITION
    assert "COPY --from=cpu-build /opt/gear /opt/gear" in stage("cpu")
    ours, theirs = arguments(DEFINITION), arguments("\n".join(stage("cpu-build")))
    assert ours["SITE"] == theirs["SITE"]
    assert ours["BASE"] == ours["BUILD_BASE"]
    assert arguments(DOCKERFILE)["CPU_BASE"] == f"docker.io/library/{ours['BASE']}"


def test_the_kinds_differ_in_base_site_and_driver() -> None:
    for name in ("{}-build", "{}"):
        cpu, cuda = (stage(name.format(kind)) for kind in KINDS)
        cuda = [line.replace("cuda", "cpu") for line in cuda if not line.startswith("ENV NVIDIA_")]
        assert cuda == cpu


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_is_of_an_ordinary_user_and_has_a_health_check(kind: str) -> None:
    lines = stage(kind)
    assert lines[-5:-3] == ["USER 10001:10001", "WORKDIR /runs"]
    assert re.fullmatch(r'HEALTHCHECK .*CMD \["with-gear", "gear", "check"\]', lines[-3])
    assert lines[-2:] == ['ENTRYPOINT ["with-gear"]', 'CMD ["bash"]']


@pytest.mark.parametrize(("kind", "built"), [("cpu", "cpu"), ("cuda", "gpu")])
def test_the_first_stage_is_the_recipe_of_the_module(kind: str, built: str) -> None:
    site = REPOSITORY / arguments("\n".join(stage(f"{kind}-build")))["SITE"]
    lines = dry("install.sh", str(site))
    assert lines[0] == "apt-get -qq update"
    assert lines[1].startswith("apt-get -qq install -y --no-install-recommends g++ ")
    assert lines[2].startswith(f"build: gear/{VERSION}-{built} by {site} in /opt/gear/")
    assert lines[-2] == "mkdir /opt/gear/container"
    assert shlex.split(lines[-1])[0] == "cp"


def test_the_second_stage_ends_with_a_check_as_the_user() -> None:
    lines = dry("finish.sh")
    assert "useradd --create-home --shell /bin/bash --uid 10001 gear" in lines
    assert lines[-1].startswith("setpriv --reuid=gear ")
    assert lines[-1].endswith(" with-gear gear check --build")
    # What is compiled against a library in the first stage finds it in the second.
    packages = lines[1].split()
    first = re.search(r"^packages=\((.*)\)$", (CONTAINERS / "install.sh").read_text(), re.M)[1]
    for development in re.findall(r"lib\w+-dev", first):
        runtime = {"libopenmpi-dev": "openmpi-bin", "libfabric-dev": "libfabric1"}
        assert runtime.get(development, "libibverbs1") in packages


@pytest.mark.parametrize("script", ["install.sh", "finish.sh"])
def test_unknown_words_are_refused(script: str) -> None:
    words = [CONTAINERS / script, "site.conf", "--dry"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--dry-run" in done.stderr
    assert done.stdout == ""


# ---- with-gear ----


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """/opt/gear of an image, with a module that only says that it is loaded."""
    start_up = start_up_folder("modules")
    assert start_up is not None
    place = tmp_path / "opt"
    (place / "modulefiles" / "gear").mkdir(parents=True)
    (place / "modulefiles" / "gear" / "1").write_text(
        f"#%Module5.1\nsetenv GEAR_HOME {place}/gear/1\nprepend-path PATH {place}/bin\n"
    )
    text = (CONTAINERS / "with-gear").read_text().replace("/opt/gear", str(place))
    init = "/" + MODULE_TOOLS["modules"] + "/bash"
    assert init in text
    (place / "with-gear").write_text(text.replace(init, str(start_up / "bash")))
    (place / "with-gear").chmod(0o755)
    return place


def with_gear(image: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [image / "with-gear", *words],
        env={"PATH": "/usr/bin:/bin", "HOME": str(image), **env},
        capture_output=True,
        text=True,
        check=False,
    )


# What Environment Modules and Lmod of a host have in the environment where its gear is loaded.
HOST = {
    "LOADEDMODULES": "gear/0",
    "_LMFILES_": "/apps/modulefiles/gear/0",
    "MODULEPATH": "/apps/modulefiles",
    "MODULESHOME": "/apps/modules",
    "__MODULES_LMCONFLICT": "gear/0&gear",
    "_ModuleTable001_": "X01vZHVsZVRhYmxlXw==",
    "_ModuleTable_Sz_": "1",
    "GEAR_HOME": "/apps/gear/0",
    "PYTHONPATH": "/apps/packages",
    "PYTHONHOME": "/apps/python",
    "VIRTUAL_ENV": "/apps/venv",
    "BASH_FUNC_module%%": "() { echo host >&2; return 1; }",
}


@pytest.mark.modules
@pytest.mark.parametrize("env", [{}, HOST], ids=["bare", "host"])
def test_the_command_runs_with_the_module_of_the_image(image: Path, env: dict[str, str]) -> None:
    script = 'echo "$GEAR_HOME $LOADEDMODULES ${PATH%%:*} ${RANK-} $1"; exit 7'
    done = with_gear(image, "bash", "-c", script, "bash", "a  b", RANK="3", **env)
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == f"{image}/gear/1 gear/1 {image}/bin 3 a  b\n"
    left = with_gear(
        image, "bash", "-c", 'echo "${PYTHONPATH-}${PYTHONHOME-}${VIRTUAL_ENV-}"', **env
    )
    assert left.stdout == "\n"


@pytest.mark.modules
@pytest.mark.parametrize(
    "module", [None, "#%Module5.1\nputs stderr no\nbreak\n"], ids=["none", "refuses"]
)
def test_a_module_that_does_not_load_is_told(image: Path, module: str | None) -> None:
    file = image / "modulefiles" / "gear" / "1"
    file.unlink()
    if module:
        file.write_text(module)
    done = with_gear(image, "echo", "ran", GEAR_HOME="/apps/gear/0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(
        f"[container] the module gear of {image} does not load: its message is above\n"
    )


@pytest.mark.modules
def test_no_command_is_refused(image: Path) -> None:
    done = with_gear(image)
    assert done.returncode == 2
    assert done.stderr.startswith("[container] no command given: with-gear COMMAND")
