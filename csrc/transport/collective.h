#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/transport.h"

namespace gear::transport {

// What all transports check and say alike.

/// Throws InvalidArgument unless rank < size <= 65536 and 0 < timeout_s <= 1e8.
void check_membership(uint32_t rank, uint32_t size, double timeout_s);
void check_timeout(double timeout_s);

/// The arguments of one rank's call; whether those of other ranks fit is for the transport to find
/// out. Throw InvalidArgument.
void check_allgather(uint32_t size, ConstBytes mine, Bytes all);
void check_exchange(uint32_t rank, uint32_t size, std::span<const ConstBytes> to,
                    std::span<const uint64_t> sizes);

/// The same of exchange_sparse.
void check_sparse(uint32_t rank, uint32_t size, std::span<const ConstBytes> to,
                  std::span<const uint8_t> from);

/// In place of a size: some bytes come, and nobody knows how many.
inline constexpr uint64_t kSome = UINT64_MAX - 1;

/// As sizes of an exchange: kSome of those that send this rank something.
std::vector<uint64_t> some_sizes(uint32_t rank, std::span<const ConstBytes> to,
                                 std::span<const uint8_t> from);

/// Whether `bytes` may come from rank r where `sizes` are expected.
inline bool is_expected(std::span<const uint64_t> sizes, uint32_t r, uint64_t bytes) {
  return sizes.empty() || (sizes[r] == kSome ? bytes > 0 : bytes == sizes[r]);
}

/// "rank 2", "ranks 0, 2 and 3", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more".
std::string ranks_text(std::span<const uint32_t> ranks);

/// What a rank is in; travels to the others, so that they can tell.
enum class Call : uint32_t {
  kStart = 0,
  kAllgather = 1,
  kExchange = 2,
  kDuplicate = 3,
  kGaveUp = 4,  ///< no call: the rank makes no more
};
std::string_view call_name(Call call);

/// The messages of TransportError. `call`: "allgather".
std::string late_text(std::span<const uint32_t> missing, std::string_view call, double timeout_s);
/// `who`: "rank 1 (pid 4711)".
std::string left_text(std::string_view who, std::string_view call);
std::string ended_text(std::string_view who, uint32_t rank, std::string_view call);
/// Of a wait that the host program ended: Ctrl-C.
std::string interrupted_text(uint32_t rank, std::string_view call);
std::string no_memory_text(uint32_t rank, std::string_view call);
/// `other` is in `its_call`, this rank in `call`.
std::string other_call_text(uint32_t other, std::string_view its_call, uint32_t rank,
                            std::string_view call);
std::string other_size_text(uint32_t sender, uint64_t sent, uint32_t receiver, uint64_t expected,
                            std::string_view call);
/// `sent`: "more than 4096".
std::string other_size_text(uint32_t sender, std::string_view sent, uint32_t receiver,
                            uint64_t expected, std::string_view call);

}  // namespace gear::transport
