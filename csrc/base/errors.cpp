#include "base/errors.h"

#include <string_view>
#include <system_error>

namespace gear::base {
namespace {

std::string without_zeros(std::string text) {
  for (size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) {
    text.replace(at, 1, "\\0");
  }
  return text;
}

}  // namespace

Error::Error(const std::string& message) : std::runtime_error(without_zeros(message)) {}

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
