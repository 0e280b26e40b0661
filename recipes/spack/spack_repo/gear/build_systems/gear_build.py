"""What gear-core and py-gear are both compiled of: the parts of GEAR that a site may leave out."""

from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class GearBuild(CudaPackage):
    """Variants of the native core, their dependencies, and the CMake options that they come to.

    Each option is said, ON or OFF: a build never depends on what else the machine has.
    """

    homepage = "https://arxiv.org/abs/2310.05205"

    license("Apache-2.0")

    variant("mpi", default=True, description="The transport 'mpi': rows of other nodes by MPI")
    variant("nccl", default=False, description="Rows between GPUs of different nodes by NCCL")
    variant(
        "verbs",
        default=False,
        description="The transport 'verbs': rows of other nodes by RDMA (InfiniBand, RoCE)",
    )
    variant(
        "fabric",
        default=False,
        description="The transport 'fabric': the same by libfabric (Slingshot, EFA, Omni-Path)",
    )

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("cuda@12:", when="+cuda")
    depends_on("mpi@3.1:", when="+mpi")
    # These are opened at run time, by the paths that Spack's compiler leaves in what calls them.
    depends_on("nccl@2.18:", when="+nccl")
    depends_on("rdma-core@32:", when="+verbs")
    depends_on("libfabric@1.7:", when="+fabric")

    requires("platform=linux", msg="GEAR runs on Linux")
    conflicts("%gcc@:10", msg="GEAR is C++20: GCC 11 or later")
    conflicts("%clang@:13", msg="GEAR is C++20: Clang 14 or later")
    conflicts(
        "cuda_arch=none",
        when="+cuda",
        msg="+cuda needs cuda_arch, the compute capability of the site's GPUs: cuda_arch=90",
    )
    for _arch in CudaPackage.cuda_arch_values:
        if _arch.isdigit() and int(_arch) < 70:
            conflicts(
                f"cuda_arch={_arch}",
                when="+cuda",
                msg=f"GEAR needs CUDA 12 and compute capability 70 or later: cuda_arch={_arch}",
            )
        depends_on(f"nccl cuda_arch={_arch}", when=f"+nccl cuda_arch={_arch}")
    conflicts("+nccl", when="~cuda", msg="NCCL carries rows between GPUs: +nccl needs +cuda")

    def gear_options(self):
        """CMake options by name."""
        options = {
            f"GEAR_WITH_{name.upper()}": "ON" if self.spec.satisfies(f"+{name}") else "OFF"
            for name in ("cuda", "mpi", "verbs", "fabric")
        }
        options["GEAR_HEADERS_ONCE"] = "ON"  # halves the build
        if self.spec.satisfies("+cuda"):
            options["GEAR_CUDA_ARCHITECTURES"] = ";".join(self.spec.variants["cuda_arch"].value)
            options["CMAKE_CUDA_COMPILER"] = self.spec["cuda"].prefix.bin.nvcc
        if self.spec.satisfies("+mpi"):
            options["MPI_CXX_COMPILER"] = self.spec["mpi"].mpicxx
        if self.spec.satisfies("+verbs"):
            options["GEAR_VERBS_INCLUDE_DIR"] = self.spec["rdma-core"].prefix.include
        if self.spec.satisfies("+fabric"):
            options["GEAR_FABRIC_INCLUDE_DIR"] = self.spec["libfabric"].prefix.include
        return options
