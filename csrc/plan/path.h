#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

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

/// "auto", "zero_copy", "staged", "device", "host".
constexpr std::string_view path_name(Path path) {
  constexpr std::array<std::string_view, 5> kNames = {"auto", "zero_copy", "staged", "device",
                                                      "host"};
  return kNames[static_cast<size_t>(path)];
}

}  // namespace gear::plan
