#include "base/names.h"

#include <algorithm>
#include <string>

#include "base/errors.h"

namespace gear::base {

size_t find_name(std::span<const std::string_view> names, std::string_view text) {
  return static_cast<size_t>(std::ranges::find(names, text) - names.begin());
}

void refuse_name(std::string_view what, std::span<const std::string_view> names,
                 std::string_view text, std::string_view hint) {
  std::string allowed;
  for (size_t i = 0; i < names.size(); ++i) {
    const char* before = i == 0 ? "'" : i + 1 < names.size() ? ", '" : " and '";
    allowed += cat(before, names[i], "'");
  }
  throw InvalidArgument(cat(what, " '", text, "': ", allowed, " are allowed", hint));
}

}  // namespace gear::base
