#pragma once

#include <cstddef>
#include <cstdint>

namespace gear::base {

/// CRC-32C (Castagnoli polynomial 0x1EDC6F41, reflected, as in RFC 3720 and in ext4, iSCSI, NVMe):
/// the checksum of a stored page.
///
/// `seed` is the checksum of the bytes before these, so a long message is summed in pieces:
///     crc32c(b, n, crc32c(a, m)) == crc32c(a followed by b, m + n)
///
/// Uses the CPU's instruction where it has one (x86-64 with SSE 4.2: three interleaved streams,
/// about as fast as memory is read), chosen at run time, else crc32c_portable. Thread safe, any
/// alignment.
uint32_t crc32c(const void* data, size_t bytes, uint32_t seed = 0);

/// The same function by table look-up, 8 bytes a step, about 2 GB/s: the fallback, and what tests
/// hold the other against.
uint32_t crc32c_portable(const void* data, size_t bytes, uint32_t seed = 0);

}  // namespace gear::base
