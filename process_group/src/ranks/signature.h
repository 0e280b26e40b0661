#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ranks/group.h"
#include "schedule/elements.h"

namespace gear::process_group {

/// How the bytes of a call go from rank to rank.
enum class Way : uint8_t {
  kMessages,  ///< of the wire
  kNode,      ///< memory that ranks of a node share
  kGloo,
};

/// What a rank gives to a collective call, as far as all ranks must give the same. Ranks send it to
/// each other as it is.
struct Signature {
  int64_t count = -1;     ///< elements of the whole; -1: each rank may give others
  uint64_t division = 0;  ///< a hash of more: shares of ranks, a sparse shape, several tensors
  int32_t root = -1;      ///< -1: there is none
  uint32_t part = 0;      ///< of a call for several tensors
  uint32_t parts = 1;
  Kind kind = Kind::kBarrier;
  Compression compression = Compression::kNone;
  Way way = Way::kMessages;
  bool is_sparse = false;
  bool is_of_all = false;  ///< its parts
  std::array<char, 11> reduction{};
  std::array<char, 20> dtype{};

  friend bool operator==(const Signature&, const Signature&) = default;
};
static_assert(std::is_trivially_copyable_v<Signature> &&
              std::has_unique_object_representations_v<Signature>);

/// A hash of some numbers: FNV-1a.
class Hash {
 public:
  void add(uint64_t number) noexcept {
    for (int shift = 0; shift < 64; shift += 8) {
      value_ = (value_ ^ ((number >> shift) & 0xFFU)) * 0x100000001b3U;
    }
  }
  uint64_t value() const noexcept { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325U;
};

/// One for a call that carries the tensors of all of `signatures`, of which there is one at least.
Signature together(const std::vector<Signature>& signatures);

/// Of a name, what fits.
template <size_t kLength>
std::array<char, kLength> short_name(std::string_view name) {
  std::array<char, kLength> kept{};
  name.copy(kept.data(), kLength);
  return kept;
}

/// As in "all_reduce of 4 Float by SUM".
std::string text_of(const Signature& signature);

/// The words of an error on rank `rank`, as Group::shown has it, which gives `own` as call
/// `number` of its group.
std::string difference(const std::string& peer, const Signature& theirs, const std::string& rank,
                       const Signature& own, uint64_t number);

}  // namespace gear::process_group
