#include "plan/path.h"

#include <array>
#include <cstddef>

namespace gear::plan {

std::string_view path_name(Path path) {
  constexpr std::array<std::string_view, 5> kNames = {"auto", "zero_copy", "staged", "device",
                                                      "host"};
  return kNames[static_cast<size_t>(path)];
}

}  // namespace gear::plan
