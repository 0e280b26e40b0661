from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.gear.build_systems.gear_build import GearBuild

from spack.package import *


class GearCore(CMakePackage, GearBuild):
    """The core of GEAR for C++ programs: a static library, its headers, find_package(gear).

    GEAR is experience replay for reinforcement learning on clusters. Programs in Python take
    py-gear, which has a core of its own and does not need this.
    """

    url = "https://files.pythonhosted.org/packages/source/g/gear-replay/gear_replay-0.1.0.tar.gz"

    # Stamped from a tarball of the sources as they stand; a release stamps it again.
    version("0.1.0", sha256="9df049585092540b9eccd260682c8d9cc2f3d95f0802791d4c98c52ce7e705a5")

    def cmake_args(self):
        options = {**self.gear_options(), "GEAR_BUILD_PYTHON": "OFF"}
        return [self.define(name, value) for name, value in options.items()]
