#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/transport.h"
#include "transport/verbs/verbs_port.h"

namespace gear::transport::verbs {

/// A piece of registered memory, as its own device or another rank addresses it.
struct MemoryChunk {
  uint64_t address;
  uint64_t bytes;
  uint32_t key;
  uint32_t zero;
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

/// Memory that the device of `port` may read and write, page-locked for as long as this lives. The
/// memory and the port are the caller's and outlive it.
class RegisteredMemory {
 public:
  enum class Use : uint8_t {
    kExposed,  ///< other ranks read it
    kLanding,  ///< this rank's reads fill it
  };

  /// In pieces of `chunk_bytes`, or of the device's limit. Throws TransportError, which names the
  /// bytes and what limits them.
  RegisteredMemory(const VerbsPort& port, Bytes memory, Use use, uint64_t chunk_bytes);

  const ChunkedMemory& chunked() const { return chunked_; }

 private:
  std::vector<Owned<ibv_mr>> registered_;
  ChunkedMemory chunked_;
};

}  // namespace gear::transport::verbs
