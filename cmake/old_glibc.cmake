# Links extensions so that they load with a glibc older than this machine's. GCC compiles as ever; zig links, as it
# knows the symbols of each glibc. libstdc++ goes in, and so do what it calls of later glibcs (old_glibc.cpp).
# In:  GEAR_GLIBC, the oldest that is to load them, 2.28 or later (empty: this machine's); GEAR_ZIG.
# Out: for_old_glibc(target).

if(GEAR_GLIBC)
  if(NOT GEAR_GLIBC VERSION_GREATER_EQUAL 2.28)
    message(FATAL_ERROR "GEAR_GLIBC=${GEAR_GLIBC}: 2.28 or later is allowed, for which cmake/old_glibc.cpp is made")
  endif()
  if(GEAR_MPI)
    message(FATAL_ERROR "GEAR_GLIBC=${GEAR_GLIBC} is for builds without MPI: GEAR_WITH_MPI=OFF")
  endif()
  if(NOT EXISTS "${GEAR_ZIG}")
    message(FATAL_ERROR "GEAR_GLIBC=${GEAR_GLIBC} needs GEAR_ZIG, the path of a zig: given '${GEAR_ZIG}'")
  endif()
  set(archives "")
  foreach(name libstdc++.a libgcc.a libgcc_s.so.1)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${name}
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT EXISTS "${found}")
      message(FATAL_ERROR "GEAR_GLIBC=${GEAR_GLIBC}: ${CMAKE_CXX_COMPILER} has no ${name}: GCC is needed")
    endif()
    string(APPEND archives " ${found}")
  endforeach()
  # GCC's own form of objects for optimisation at link time is for its own linker.
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION OFF)
  set(CMAKE_CXX_CREATE_SHARED_MODULE
    "${GEAR_ZIG} cc -target ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu.${GEAR_GLIBC} -shared -s \
-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/cmake/old_glibc.map \
-o <TARGET> <OBJECTS> <LINK_LIBRARIES> ${archives}")
endif()

function(for_old_glibc target)
  if(GEAR_GLIBC)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/old_glibc.cpp)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/cmake/old_glibc.cpp PROPERTIES
      SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()
