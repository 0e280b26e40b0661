# Whether the build has the transport verbs (GEAR_VERBS). It needs the header of libibverbs; the library
# itself is opened at run time.
# In:  GEAR_WITH_VERBS.
# Out: GEAR_VERBS, GEAR_VERBS_INCLUDE_DIR.

set(GEAR_VERBS OFF)
string(TOUPPER "${GEAR_WITH_VERBS}" wanted)
if(NOT wanted MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "GEAR_WITH_VERBS=${GEAR_WITH_VERBS}: AUTO, ON and OFF are allowed")
endif()

if(wanted STREQUAL "OFF")
  message(STATUS "GEAR: without verbs (GEAR_WITH_VERBS=OFF)")
else()
  find_path(GEAR_VERBS_INCLUDE_DIR infiniband/verbs.h)
  if(GEAR_VERBS_INCLUDE_DIR)
    # Reads of a GID with its type, and of a port's flags, came with rdma-core 32.
    file(STRINGS "${GEAR_VERBS_INCLUDE_DIR}/infiniband/verbs.h" has_gid_entry REGEX "_ibv_query_gid_ex")
  endif()
  if(GEAR_VERBS_INCLUDE_DIR AND has_gid_entry)
    set(GEAR_VERBS ON)
    message(STATUS "GEAR: with verbs (${GEAR_VERBS_INCLUDE_DIR}/infiniband/verbs.h)")
  elseif(wanted STREQUAL "ON")
    message(FATAL_ERROR "GEAR_WITH_VERBS=ON, but no infiniband/verbs.h of rdma-core 32 or later was found: "
                        "install libibverbs-dev or rdma-core-devel, or set GEAR_VERBS_INCLUDE_DIR")
  else()
    message(STATUS "GEAR: without verbs (GEAR_WITH_VERBS=AUTO): no infiniband/verbs.h of rdma-core 32 or later")
  endif()
endif()
