from spack_repo.builtin.build_systems.python import PythonPackage
from spack_repo.gear.build_systems.gear_build import GearBuild

from spack.package import *


class PyGear(PythonPackage, GearBuild):
    """GEAR: experience replay for reinforcement learning on clusters.

    The package gear with its command, Slurm templates in $GEAR_HOME/slurm, programs to start from
    in $GEAR_HOME/examples, and programs that try an installation in $GEAR_HOME/share/gear/smoke.
    For batches of torch tensors, install py-torch beside it.
    """

    pypi = "gear-replay/gear_replay-0.1.0.tar.gz"
    import_modules = ["gear", "gear.cli", "gear.distributed"]

    # Stamped from a tarball of the sources as they stand; a release stamps it again.
    version("0.1.0", sha256="9df049585092540b9eccd260682c8d9cc2f3d95f0802791d4c98c52ce7e705a5")

    variant(
        "c10d",
        default=False,
        description="gear_mpi: torch.distributed over MPI; and gear_emu",
    )
    variant("deepspeed", default=False, description="DeepSpeed beside it")
    variant(
        "horovod",
        default=False,
        description="Horovod beside it, which has a vulnerability that is not fixed, "
        "CVE-2024-10190: in elastic mode anybody who reaches its rendezvous server runs code. "
        "Never run it elastic (--min-np, --host-discovery-script)",
    )

    # As in pyproject.toml, which a test compares.
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-scikit-build-core@0.10:", type="build")
    depends_on("py-pybind11@2.13:", type="build")
    depends_on("py-numpy@1.23:", type=("build", "run"))
    depends_on("py-click@8.1:", type="run")
    depends_on("py-nvidia-ml-py@12:", type="run")
    depends_on("py-rich@13:", type="run")
    depends_on("py-torch@2.4:", type=("build", "run"), when="+c10d")
    depends_on("py-torch@2.4:", type="run", when="+deepspeed")
    depends_on("py-torch@2.4:", type="run", when="+horovod")
    # What pyproject.toml does not name.
    depends_on("ninja", type="build")
    depends_on("py-mpi4py", type="run", when="+mpi")
    depends_on("py-deepspeed", type="run", when="+deepspeed")
    depends_on("py-horovod frameworks=pytorch controllers=mpi", type="run", when="+horovod")
    depends_on("py-horovod ~cuda tensor_ops=mpi", type="run", when="+horovod ~cuda")

    conflicts("+c10d", when="~mpi", msg="gear_mpi is a process group over MPI: +c10d needs +mpi")
    conflicts("+horovod", when="~mpi", msg="Horovod starts its ranks by MPI: +horovod needs +mpi")

    def config_settings(self, spec, prefix):
        define = {f"cmake.define.{name}": value for name, value in self.gear_options().items()}
        return {"build-dir": "build", **define}

    @run_after("install")
    def install_beside_the_package(self):
        install_tree("slurm", self.prefix.slurm)
        install_tree("examples", self.prefix.examples)
        install_tree("recipes/smoke", self.prefix.share.gear.smoke)
        install("display-gpu-info.sh", self.prefix.bin)

    @run_after("install", when="+c10d")
    def install_process_group(self):
        package = join_path(self.prefix, python_platlib, "gear_mpi")
        build = Executable("tools/c10d.sh")
        build.add_default_env("MPICXX", self.spec["mpi"].mpicxx)
        for words in ([], ["--emulator"]):
            build(f"--python={python.path}", f"--to={package}/c10d", *words)

    def setup_run_environment(self, env):
        env.set("GEAR_HOME", self.prefix)
        env.set("GEAR_VERSION", str(self.version))
        env.set("PYTHONNOUSERSITE", "1")
