#include "base/dtype.h"

#include <array>

#include "base/errors.h"

namespace gear::base {
namespace {

struct Entry {
  std::string_view name;
  size_t bytes;
};

// Indexed by DType.
constexpr std::array<Entry, kNumDTypes> kEntries = {{{"bool", 1},
                                                     {"uint8", 1},
                                                     {"int8", 1},
                                                     {"uint16", 2},
                                                     {"int16", 2},
                                                     {"uint32", 4},
                                                     {"int32", 4},
                                                     {"uint64", 8},
                                                     {"int64", 8},
                                                     {"float16", 2},
                                                     {"bfloat16", 2},
                                                     {"float32", 4},
                                                     {"float64", 8}}};
static_assert(static_cast<size_t>(DType::kF64) + 1 == kNumDTypes);

const Entry& entry(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  GEAR_CHECK(index < kEntries.size());
  return kEntries[index];
}

}  // namespace

size_t dtype_bytes(DType dtype) { return entry(dtype).bytes; }

std::string_view dtype_name(DType dtype) { return entry(dtype).name; }

DType parse_dtype(std::string_view name) {
  std::string allowed;
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (kEntries[i].name == name) {
      return static_cast<DType>(i);
    }
    allowed += (i == 0 ? "" : ", ");
    allowed += kEntries[i].name;
  }
  throw InvalidArgument(cat("[schema] unknown dtype '", name, "': choose one of ", allowed));
}

}  // namespace gear::base
