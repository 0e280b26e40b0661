# What `cmake --install` gives a C++ program where there is no Python extension to install: the static
# library, its headers, and what find_package(gear) reads. With MPI also libgear_mpi.so, which the core looks
# for in the folder of the program that contains it: link or copy it there (GEAR_MPI_LIBRARY names it).
# In:  gear_core, gear_mpi.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(place ${CMAKE_INSTALL_LIBDIR}/cmake/gear)
set_target_properties(gear_core PROPERTIES EXPORT_NAME core)
target_compile_features(gear_core INTERFACE cxx_std_20)
install(TARGETS gear_core EXPORT gear ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY csrc/ DESTINATION include/gear FILES_MATCHING PATTERN "*.h"
  PATTERN bindings EXCLUDE)
if(GEAR_MPI)
  install(TARGETS gear_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(EXPORT gear NAMESPACE gear:: FILE gear-targets.cmake DESTINATION ${place})
configure_package_config_file(cmake/gear-config.cmake.in gear-config.cmake INSTALL_DESTINATION ${place}
  PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(gear-config-version.cmake VERSION ${GEAR_VERSION}
  COMPATIBILITY ExactVersion) # nothing of C++ is promised between versions
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gear-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/gear-config-version.cmake DESTINATION ${place})
