#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/files/crc32c.h"
#include "base/numbers/philox.h"

using namespace gear::base;

namespace {

std::vector<uint8_t> random_bytes(size_t count) {
  std::vector<gear::base::Draw128> draws(count / sizeof(gear::base::Draw128) + 1);
  philox_fill(3, 0, 0, draws);
  std::vector<uint8_t> bytes(count);
  if (count > 0) {
    std::memcpy(bytes.data(), draws.data(), count);
  }
  return bytes;
}

void check_known(uint32_t (*crc)(const void*, size_t, uint32_t)) {
  std::vector<uint8_t> bytes(32, 0x00);
  CHECK(crc(bytes.data(), 32, 0) == 0x8A9136AA);
  bytes.assign(32, 0xFF);
  CHECK(crc(bytes.data(), 32, 0) == 0x62A8AB43);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  CHECK(crc(bytes.data(), 32, 0) == 0x46DD794E);
  std::iota(bytes.rbegin(), bytes.rend(), uint8_t{0});
  CHECK(crc(bytes.data(), 32, 0) == 0x113FDB5C);
  constexpr std::string_view kCheck = "123456789";
  CHECK(crc(kCheck.data(), kCheck.size(), 0) == 0xE3069283);
  CHECK(crc(nullptr, 0, 0) == 0);
}

}  // namespace

TEST_CASE("crc32c gives the answers of RFC 3720, appendix B.4, on both paths") {
  check_known(crc32c);
  check_known(crc32c_portable);
}

TEST_CASE("both paths of crc32c agree at every length, alignment and seed") {
  const std::vector<uint8_t> bytes = random_bytes(70000);
  for (size_t length = 0; length < 1700; ++length) {
    const uint8_t* at = bytes.data() + length % 9;
    REQUIRE(crc32c(at, length, 77) == crc32c_portable(at, length, 77));
  }
  for (const size_t length :
       {size_t{12287}, size_t{12288}, size_t{12289}, size_t{65536}, size_t{69999}}) {
    CHECK(crc32c(bytes.data() + 1, length) == crc32c_portable(bytes.data() + 1, length));
  }
}

TEST_CASE("crc32c of pieces is crc32c of the whole") {
  const std::vector<uint8_t> bytes = random_bytes(30000);
  const uint32_t whole = crc32c(bytes.data(), bytes.size());
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{777}, size_t{12288}, size_t{30000}}) {
    const uint32_t head = crc32c(bytes.data(), cut);
    CHECK(crc32c(bytes.data() + cut, bytes.size() - cut, head) == whole);
  }
}

TEST_CASE("crc32c notices each single flipped bit") {
  std::vector<uint8_t> bytes = random_bytes(64);
  const uint32_t whole = crc32c(bytes.data(), bytes.size());
  for (size_t bit = 0; bit < 512; ++bit) {
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1U << (bit % 8)));
    CHECK(crc32c(bytes.data(), bytes.size()) != whole);
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ (1U << (bit % 8)));
  }
}
