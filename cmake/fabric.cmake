# Whether the build has the transport fabric (GEAR_FABRIC). It needs the headers of libfabric; the library
# itself is opened at run time.
# In:  GEAR_WITH_FABRIC.
# Out: GEAR_FABRIC, GEAR_FABRIC_INCLUDE_DIR.

set(GEAR_FABRIC OFF)
string(TOUPPER "${GEAR_WITH_FABRIC}" wanted)
if(NOT wanted MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "GEAR_WITH_FABRIC=${GEAR_WITH_FABRIC}: AUTO, ON and OFF are allowed")
endif()

if(wanted STREQUAL "OFF")
  message(STATUS "GEAR: without fabric (GEAR_WITH_FABRIC=OFF)")
else()
  find_path(GEAR_FABRIC_INCLUDE_DIR rdma/fi_rma.h)
  if(GEAR_FABRIC_INCLUDE_DIR)
    # The network card of an interface (fi_info::nic) came with libfabric 1.7, FI_CONTEXT2 before.
    file(STRINGS "${GEAR_FABRIC_INCLUDE_DIR}/rdma/fabric.h" has_nic REGEX "fid_nic")
  endif()
  if(GEAR_FABRIC_INCLUDE_DIR AND has_nic)
    set(GEAR_FABRIC ON)
    message(STATUS "GEAR: with fabric (${GEAR_FABRIC_INCLUDE_DIR}/rdma/fabric.h)")
  elseif(wanted STREQUAL "ON")
    message(FATAL_ERROR "GEAR_WITH_FABRIC=ON, but no rdma/fabric.h of libfabric 1.7 or later was found: "
                        "install libfabric-dev or libfabric-devel, or set GEAR_FABRIC_INCLUDE_DIR")
  else()
    message(STATUS "GEAR: without fabric (GEAR_WITH_FABRIC=AUTO): no rdma/fabric.h of libfabric 1.7 or later")
  endif()
endif()
