#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace gear::transport {

/// A piece of registered memory, as its own device or another rank addresses it; travels to other
/// ranks as it is.
struct MemoryChunk {
  uint64_t address;
  uint64_t bytes;
  uint64_t key;
};

/// Memory in chunks one behind the other, all but the last one of one size.
class ChunkedMemory {
 public:
  ChunkedMemory() = default;
  explicit ChunkedMemory(std::vector<MemoryChunk> chunks) : chunks_(std::move(chunks)) {}

  const std::vector<MemoryChunk>& chunks() const { return chunks_; }
  uint64_t bytes() const;
  /// From byte `offset` to the end of its chunk; `offset` is less than bytes().
  MemoryChunk from(uint64_t offset) const;

 private:
  std::vector<MemoryChunk> chunks_;
};

/// What `rank` says of its memory. Throws TransportError where it makes no ChunkedMemory: chunks of
/// no bytes, or of other sizes than the first one.
ChunkedMemory memory_of(uint32_t rank, std::vector<MemoryChunk> chunks);

/// Who uses memory that a device may reach.
enum class MemoryUse : uint8_t {
  kExposed,  ///< other ranks read it
  kLanding,  ///< this rank's reads fill it
};

/// `memory` in pieces of `most_bytes` at most, whole pages but for the last one.
std::vector<Bytes> pieces_of(Bytes memory, uint64_t most_bytes);

/// "[transport] mlx5_0 registers 0 of 4096 bytes, and then fails (<why>): this process may lock
/// 65536 bytes of memory; ...".
std::string not_registered_text(std::string_view device, uint64_t done, uint64_t bytes,
                                std::string_view why);

}  // namespace gear::transport
