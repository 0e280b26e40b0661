#pragma once

#include <cstdint>

#include "base/names.h"

namespace gear::plan {

/// How the bytes of a batch come from the store. The first two may be asked for; kAuto stands for
/// the one of them that the link model (link_model.h) expects to be faster.
enum class Path : uint8_t {
  kAuto,
  kZeroCopy,  ///< a kernel reads pinned host memory by pointer
  kStaged,    ///< host threads gather into pinned memory, a copy engine takes it to the GPU
  kDevice,    ///< a kernel reads the memory of a GPU
  kHost,      ///< host threads gather into host memory
};

inline constexpr base::Names<Path, 5> kPaths{
    "[loader] path", {"auto", "zero_copy", "staged", "device", "host"}, 3};

}  // namespace gear::plan
