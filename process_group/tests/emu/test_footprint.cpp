#include <doctest/doctest.h>

#include "emu/footprint.h"

namespace gear::emu {
namespace {

TEST_CASE("a hold takes what was measured from its bytes on") {
  const std::vector<Footprint> measured{{.bytes = 0, .blocks = 1, .threads = 128},
                                        {.bytes = 65536, .blocks = 8, .threads = 512},
                                        {.bytes = 1048576, .blocks = 24, .threads = 512}};
  CHECK(footprint_of(measured, 0).blocks == 1);
  CHECK(footprint_of(measured, 65535).blocks == 1);
  CHECK(footprint_of(measured, 65536).blocks == 8);
  CHECK(footprint_of(measured, 1 << 30).blocks == 24);
}

TEST_CASE("a hold of fewer bytes than were measured takes what the fewest do") {
  CHECK(footprint_of({{.bytes = 1024, .blocks = 2, .threads = 64}}, 1).blocks == 2);
}

TEST_CASE("a hold of which nothing was measured takes one warp") {
  const Footprint found = footprint_of({}, 1 << 20);
  CHECK(found.blocks == 1);
  CHECK(found.threads == 32);
  CHECK(found.shared == 0);
}

}  // namespace
}  // namespace gear::emu
