#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "schedule/elements.h"
#include "schedule/staging.h"

namespace gear::process_group {

/// Some bytes of a tensor.
struct Block {
  std::byte* bytes;
  uint64_t length;
};

/// Bytes between this rank and one other. What is sent is not written to.
struct Transfer {
  int peer;
  bool receives;
  std::byte* bytes;
  uint64_t length;
  bool reduces = false;  ///< what is received is reduced into `bytes`
  /// The other may expect another length, and finds out: the last piece is shorter than others, and
  /// empty if need be.
  bool tells_length = false;
};

/// Transfers that are under way together, at most one a peer and direction; when all have ended,
/// `then` is called, and the next round begins.
struct Round {
  std::vector<Transfer> transfers;
  std::function<void()> then;
  std::optional<Block> reads = std::nullopt;  ///< by `then`, of tensors; none: perhaps all
  Block complete{nullptr, 0};                 ///< what nothing writes after this round
};

/// What a reduction does with elements.
struct Arithmetic {
  Element element = Element::kU8;
  Reduction reduction = Reduction::kSum;
  int64_t divisor = 1;                           ///< the result is divided by it
  Compression compression = Compression::kNone;  ///< other than kNone: of float32 alone

  uint64_t bytes() const { return element_bytes(element); }
};

/// One rank's part of a collective operation: rounds, with the memory that they need between them.
struct Schedule {
  std::vector<Round> rounds;
  Arithmetic arithmetic;
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::shared_ptr<Staging> staging = nullptr;  ///< where tensors are in the memory of a GPU
  /// Where what comes says how it goes on: adds rounds when those before have ended, once.
  std::unique_ptr<std::function<void(Schedule&)>> more = nullptr;

  std::byte* room(uint64_t bytes) {
    return memory.emplace_back(new std::byte[bytes]).get();  // not zeroed
  }
};

}  // namespace gear::process_group
