# Whether the build has CUDA (GEAR_CUDA), with which compiler, and how its sources are compiled.
# In:  GEAR_WITH_CUDA, GEAR_CUDA_ARCHITECTURES.
# Out: GEAR_CUDA, GEAR_CUDA_ARCHITECTURE_TEXT, use_cuda(target).

set(GEAR_CUDA_MINIMUM 12.0) # C++20

set(GEAR_CUDA OFF)
set(GEAR_CUDA_ARCHITECTURE_TEXT "")
string(TOUPPER "${GEAR_WITH_CUDA}" wanted)
if(NOT wanted MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "GEAR_WITH_CUDA=${GEAR_WITH_CUDA}: AUTO, ON and OFF are allowed")
endif()

if(wanted STREQUAL "OFF")
  message(STATUS "GEAR: without CUDA (GEAR_WITH_CUDA=OFF)")
else()
  list(TRANSFORM GEAR_CUDA_ARCHITECTURES APPEND "-real" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
  list(GET GEAR_CUDA_ARCHITECTURES -1 last)
  list(APPEND CMAKE_CUDA_ARCHITECTURES "${last}-virtual")
  # One compiler for both kinds of source. By the environment: check_language passes on no variable.
  if(CMAKE_CUDA_HOST_COMPILER)
    set(ENV{CUDAHOSTCXX} "${CMAKE_CUDA_HOST_COMPILER}")
  elseif(NOT DEFINED ENV{CUDAHOSTCXX})
    set(ENV{CUDAHOSTCXX} "${CMAKE_CXX_COMPILER}")
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE) # look again: one may have come since
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    set(why "no CUDA compiler was found: put nvcc on PATH, or set CUDACXX to it")
  elseif(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS GEAR_CUDA_MINIMUM)
    set(why "${CMAKE_CUDA_COMPILER} is CUDA ${CMAKE_CUDA_COMPILER_VERSION}, older than ${GEAR_CUDA_MINIMUM}")
  else()
    find_package(CUDAToolkit QUIET)
    if(CUDAToolkit_FOUND)
      set(GEAR_CUDA ON)
    else()
      set(why "there is no CUDA toolkit (headers, libcudart) around ${CMAKE_CUDA_COMPILER}")
    endif()
  endif()
  if(GEAR_CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake before 3.26
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    list(JOIN GEAR_CUDA_ARCHITECTURES " " GEAR_CUDA_ARCHITECTURE_TEXT)
    message(STATUS "GEAR: with CUDA ${CMAKE_CUDA_COMPILER_VERSION} (${CMAKE_CUDA_COMPILER}) for "
                   "${GEAR_CUDA_ARCHITECTURE_TEXT}")
  elseif(wanted STREQUAL "ON")
    message(FATAL_ERROR "GEAR_WITH_CUDA=ON, but ${why}")
  else()
    message(STATUS "GEAR: without CUDA (GEAR_WITH_CUDA=AUTO): ${why}")
  endif()
endif()

# Lets the sources of a static library or program use CUDA, .cu and .cpp alike.
function(use_cuda target)
  target_compile_definitions(${target} PUBLIC GEAR_CUDA=1)
  # The driver is found at run time, so that what is built here runs on machines without one.
  set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY Static
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF)
  target_link_libraries(${target} PUBLIC CUDA::cudart_static)
  # No fused multiply-add: the GPU computes the bits that the CPU does.
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-O3;--fmad=false;--expt-relaxed-constexpr;-lineinfo>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow,-ffp-contract=off>")
endfunction()
