#include <doctest/doctest.h>

#include <initializer_list>

#include "base/numbers/divider.h"
#include "base/numbers/philox.h"

using gear::base::Divider;
using gear::base::philox;

TEST_CASE("quotients are exact for every divisor and value") {
  for (uint64_t round = 0; round < 40000; ++round) {
    const auto random = philox(1, 0, round);
    auto divisor = static_cast<uint32_t>(random.hi >> (32 + random.lo % 32));
    if (round < 3000) {
      divisor = static_cast<uint32_t>(round + 1);
    }
    if (divisor == 0) {
      divisor = UINT32_MAX;
    }
    const Divider by(divisor);
    REQUIRE(by.divisor() == divisor);
    const uint32_t multiple = UINT32_MAX / divisor * divisor;
    for (const uint32_t value : {0U, 1U, divisor - 1, divisor, multiple - 1, multiple, UINT32_MAX,
                                 static_cast<uint32_t>(random.lo)}) {
      REQUIRE(by.divide(value) == value / divisor);
      REQUIRE(by.remainder(value, by.divide(value)) == value % divisor);
    }
  }
}
