#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace gear::testing {

/// How many of `all` random cases a test tries: the part that GEAR_TEST_SCALE says, rounded up.
/// That is 1 unless it is set, and a fifth under a sanitizer, where each case takes ten times as
/// long (tools/native.sh).
inline uint64_t tries(uint64_t all) {
  static const double scale = [] {
    const char* text = std::getenv("GEAR_TEST_SCALE");
    return text == nullptr || *text == '\0' ? 1.0 : std::stod(text);
  }();
  if (!(scale >= 0.05 && scale <= 1000)) {  // with less, some tests try too little to be sure
    throw std::invalid_argument("GEAR_TEST_SCALE: give a number of 0.05 to 1000");
  }
  return static_cast<uint64_t>(std::ceil(static_cast<double>(all) * scale));
}

}  // namespace gear::testing
