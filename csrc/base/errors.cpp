#include "base/errors.h"

#include <string_view>
#include <system_error>

namespace gear::base {

std::string errno_text(int code) { return std::generic_category().message(code); }

void fail_check(const char* expression, const char* file, int line) {
  // The path of the build machine says nothing to a reader: keep what follows csrc/.
  std::string_view path(file);
  const size_t root = path.rfind("csrc/");
  if (root != std::string_view::npos) {
    path.remove_prefix(root);
  }
  throw std::logic_error(cat("[internal] ", path, ":", line, ": ", expression, " is false"));
}

}  // namespace gear::base
