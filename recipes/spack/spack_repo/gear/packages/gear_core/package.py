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
    version("0.1.0", sha256="c65e5f5d41b2d447884d9e5b6a676c511f15994b28c85a9c067e4f3e73e2f69f")

    def cmake_args(self):
        options = {**self.gear_options(), "GEAR_BUILD_PYTHON": "OFF"}
        return [self.define(name, value) for name, value in options.items()]
