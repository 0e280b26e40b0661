# Reads headers once for many sources: those of the standard library, and those that a target names, are
# compiled beforehand, and the sources of a folder are compiled as one: what is unnamed outside a source has a
# name of its own in its folder. A build from nothing then takes half the time.
# In:  GEAR_HEADERS_ONCE. A build without proves that every source includes what it uses.
# Out: read_headers_once(target headers...), after the target's sources are complete.

set(GEAR_STANDARD_HEADERS algorithm array atomic charconv chrono cmath condition_variable cstring deque
  functional memory mutex optional span sstream string string_view thread vector)

function(read_headers_once target)
  if(GEAR_HEADERS_ONCE)
    set(headers ${GEAR_STANDARD_HEADERS} ${ARGN})
    list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
    target_precompile_headers(${target} PRIVATE ${headers})
    get_target_property(sources ${target} SOURCES)
    foreach(source ${sources})
      if(source MATCHES "\\.cpp$") # kernels stay by themselves
        get_filename_component(folder ${source} DIRECTORY)
        string(MAKE_C_IDENTIFIER "${folder}" group)
        set_property(SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP ${group})
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endif()
endfunction()
