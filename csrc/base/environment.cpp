#include "base/environment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "base/errors.h"

namespace gear::base {
namespace {

constexpr std::array<EnvVar, 3> kTable = {{
    {"GEAR_NUM_THREADS", "the CPUs this process may use, at most 16",
     "threads that gather batches on the CPU, the calling one included"},
    {"GEAR_LOG", "warning", "what the core reports to the log: off, warning, info or debug"},
    {"GEAR_SHM_PREFIX", "gear",
     "prefix of the names of shared regions in /dev/shm: <prefix>-<name of the buffer>"},
}};

}  // namespace

std::span<const EnvVar> environment_table() { return kTable; }

std::optional<std::string> env_string(std::string_view name) {
  GEAR_CHECK(std::ranges::any_of(kTable, [&](const EnvVar& var) { return var.name == name; }));
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  return std::string(value);
}

std::optional<int64_t> env_int(std::string_view name, int64_t minimum, int64_t maximum) {
  const std::optional<std::string> text = env_string(name);
  if (!text) {
    return std::nullopt;
  }
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < minimum || value > maximum) {
    throw InvalidArgument(cat("[environment] ", name, "='", *text,
                              "' is not accepted: set an integer from ", minimum, " to ", maximum,
                              ", or unset it"));
  }
  return value;
}

}  // namespace gear::base
