#include "memory/shared/shared_header.h"

#include <algorithm>

#include "base/environment.h"
#include "base/errors.h"

namespace gear::memory {
namespace {

// Together with the prefix within NAME_MAX (255).
constexpr size_t kMaxNameLength = 128;
constexpr size_t kMaxPrefixLength = 64;

bool is_digit_or_letter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

void check_name(std::string_view what, std::string_view value, size_t max_length) {
  const bool allowed = std::ranges::all_of(
      value, [](char c) { return is_digit_or_letter(c) || c == '.' || c == '_' || c == '-'; });
  if (value.empty() || value.size() > max_length || !allowed) {
    throw base::InvalidArgument(base::cat("[memory] ", what, " '", value,
                                          "' is not accepted: give 1 to ", max_length,
                                          " characters of letters, digits, '.', '_' and '-'"));
  }
}

}  // namespace

std::string shared_object_name(std::string_view name) {
  const std::string prefix = base::env_string("GEAR_SHM_PREFIX").value_or("gear");
  check_name("the prefix of shared names in GEAR_SHM_PREFIX", prefix, kMaxPrefixLength);
  check_name("the name of a shared region", name, kMaxNameLength);
  return base::cat("/", prefix, "-", name);
}

void check_schema_hash(std::string_view hash) {
  const bool hex = std::ranges::all_of(hash, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  });
  if (hash.size() != sizeof(SharedHeader::schema_hash) || !hex) {
    throw base::InvalidArgument(
        base::cat("[memory] schema hash '", hash, "' is not accepted: give 16 hex digits"));
  }
}

}  // namespace gear::memory
