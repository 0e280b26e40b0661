#include "base/files/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace gear::base {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // bit reversed

using Table = std::array<uint32_t, 256>;

// kTables[k][b]: the register after byte b and k zero bytes.
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    }
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xFF];
    }
  }
  return tables;
}

constexpr std::array<Table, 8> kTables = make_tables();

uint64_t load_little(const uint8_t* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof word);
  if constexpr (std::endian::native == std::endian::big) {
    word = __builtin_bswap64(word);
  }
  return word;
}

#if defined(__x86_64__)

// Passing a register over n zero bytes is linear over GF(2), so it is four look-ups, one per byte
// of the register; that is how a stream's sum is moved past the streams that follow it.
using ZeroBytes = std::array<Table, 4>;

constexpr ZeroBytes make_zero_bytes(size_t num_bytes) {
  std::array<uint32_t, 32> image{};
  for (size_t bit = 0; bit < 32; ++bit) {
    uint32_t crc = uint32_t{1} << bit;
    for (size_t i = 0; i < num_bytes; ++i) {
      crc = (crc >> 8) ^ kTables[0][crc & 0xFF];
    }
    image[bit] = crc;
  }
  ZeroBytes zeros{};
  for (size_t position = 0; position < 4; ++position) {
    for (size_t byte = 0; byte < 256; ++byte) {
      uint32_t crc = 0;
      for (size_t bit = 0; bit < 8; ++bit) {
        if (((byte >> bit) & 1) != 0) {
          crc ^= image[8 * position + bit];
        }
      }
      zeros[position][byte] = crc;
    }
  }
  return zeros;
}

uint32_t shift(const ZeroBytes& zeros, uint32_t crc) {
  return zeros[0][crc & 0xFF] ^ zeros[1][(crc >> 8) & 0xFF] ^ zeros[2][(crc >> 16) & 0xFF] ^
         zeros[3][crc >> 24];
}

// Bytes of one of three streams; long for whole pages, short so that a small page gains as well.
constexpr size_t kLongBytes = 4096;
constexpr size_t kShortBytes = 256;

// The instruction takes 3 cycles but starts every cycle: three independent streams keep it busy.
[[gnu::target("sse4.2")]] uint32_t three_streams(const uint8_t*& at, size_t& bytes,
                                                 size_t stream_bytes, const ZeroBytes& zeros,
                                                 uint32_t crc) {
  while (bytes >= 3 * stream_bytes) {
    uint64_t first = crc;
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < stream_bytes; i += 8) {
      first = _mm_crc32_u64(first, load_little(at + i));
      second = _mm_crc32_u64(second, load_little(at + stream_bytes + i));
      third = _mm_crc32_u64(third, load_little(at + 2 * stream_bytes + i));
    }
    crc = shift(zeros, static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
    crc = shift(zeros, crc) ^ static_cast<uint32_t>(third);
    at += 3 * stream_bytes;
    bytes -= 3 * stream_bytes;
  }
  return crc;
}

[[gnu::target("sse4.2")]] uint32_t crc32c_sse42(const void* data, size_t bytes, uint32_t seed) {
  static const ZeroBytes long_zeros = make_zero_bytes(kLongBytes);
  static const ZeroBytes short_zeros = make_zero_bytes(kShortBytes);
  const auto* at = static_cast<const uint8_t*>(data);
  uint32_t crc = ~seed;
  crc = three_streams(at, bytes, kLongBytes, long_zeros, crc);
  crc = three_streams(at, bytes, kShortBytes, short_zeros, crc);
  for (; bytes >= 8; at += 8, bytes -= 8) {
    crc = static_cast<uint32_t>(_mm_crc32_u64(crc, load_little(at)));
  }
  for (; bytes > 0; ++at, --bytes) {
    crc = _mm_crc32_u8(crc, *at);
  }
  return ~crc;
}

#endif

using Crc = uint32_t (*)(const void*, size_t, uint32_t);

Crc choose_crc() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("sse4.2")) {
    return crc32c_sse42;
  }
#endif
  return crc32c_portable;
}

}  // namespace

uint32_t crc32c(const void* data, size_t bytes, uint32_t seed) {
  static const Crc crc = choose_crc();
  return crc(data, bytes, seed);
}

uint32_t crc32c_portable(const void* data, size_t bytes, uint32_t seed) {
  const auto* at = static_cast<const uint8_t*>(data);
  uint32_t crc = ~seed;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    const uint64_t word = load_little(at) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) {
      crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
    }
  }
  for (; bytes > 0; ++at, --bytes) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xFF];
  }
  return ~crc;
}

}  // namespace gear::base
