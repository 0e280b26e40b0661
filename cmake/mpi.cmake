# Whether the build has MPI (GEAR_MPI), and whose.
# In:  GEAR_WITH_MPI.
# Out: GEAR_MPI, GEAR_MPI_TEXT ("Open MPI v4.1.4"; empty: without), MPI::MPI_CXX.

set(GEAR_MPI OFF)
set(GEAR_MPI_TEXT "")
string(TOUPPER "${GEAR_WITH_MPI}" wanted)
if(NOT wanted MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "GEAR_WITH_MPI=${GEAR_WITH_MPI}: AUTO, ON and OFF are allowed")
endif()

if(wanted STREQUAL "OFF")
  message(STATUS "GEAR: without MPI (GEAR_WITH_MPI=OFF)")
else()
  set(MPI_CXX_SKIP_MPICXX ON)
  set(MPI_DETERMINE_LIBRARY_VERSION ON)
  find_package(MPI 3.1 QUIET COMPONENTS CXX) # nonblocking duplication of communicators: 3.0
  if(MPI_CXX_FOUND)
    set(GEAR_MPI ON)
    string(REGEX MATCH "^[^,\n]+" GEAR_MPI_TEXT "${MPI_CXX_LIBRARY_VERSION_STRING}")
    string(REGEX REPLACE "[ \t]+" " " GEAR_MPI_TEXT "${GEAR_MPI_TEXT}")
    string(STRIP "${GEAR_MPI_TEXT}" GEAR_MPI_TEXT)
    if(NOT GEAR_MPI_TEXT)
      set(GEAR_MPI_TEXT "MPI ${MPI_CXX_VERSION}")
    endif()
    message(STATUS "GEAR: with ${GEAR_MPI_TEXT} (${MPI_CXX_COMPILER})")
  elseif(wanted STREQUAL "ON")
    message(FATAL_ERROR "GEAR_WITH_MPI=ON, but no MPI of version 3.1 or later was found: put its "
                        "mpicxx on PATH, or set MPI_HOME to where it is")
  else()
    message(STATUS "GEAR: without MPI (GEAR_WITH_MPI=AUTO): no mpicxx on PATH")
  endif()
endif()
