#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gear::base {

/// One environment variable that an operator may set.
struct EnvVar {
  std::string_view name;
  std::string_view
      default_value;  ///< as a reader would write it, or words that say how it is found
  std::string_view meaning;
};

/// THE table: every environment variable of the core. Configuration of a program is values
/// in code; the environment is for operators alone, and `gear check` and the manual print this.
std::span<const EnvVar> environment_table();

/// The variable's text, or nothing when it is unset or empty. `name` must be in the table. Reads
/// the environment at each call; like getenv, it must not race with a setenv.
std::optional<std::string> env_string(std::string_view name);

/// The variable as a decimal integer, or nothing when unset or empty. Throws InvalidArgument,
/// naming the variable, its value and the range, for anything but an integer in [minimum, maximum].
std::optional<int64_t> env_int(std::string_view name,
                               int64_t minimum = std::numeric_limits<int64_t>::min(),
                               int64_t maximum = std::numeric_limits<int64_t>::max());

/// The folder for what was measured once: GEAR_CACHE, else where the system's own variables
/// (XDG_CACHE_HOME, HOME) say that caches belong; nothing without any of them. It need not exist.
std::optional<std::string> cache_folder();

}  // namespace gear::base
