#pragma once

#include <cstdint>
#include <vector>

#include "transport/one_sided/chunked_memory.h"
#include "transport/verbs/verbs_port.h"

namespace gear::transport::verbs {

/// Memory that the device of `port` may read and write, page-locked for as long as this lives. The
/// memory and the port are the caller's and outlive it.
class RegisteredMemory {
 public:
  /// In pieces of `chunk_bytes`, or of the device's limit. Throws TransportError, which names the
  /// bytes and what limits them.
  RegisteredMemory(const VerbsPort& port, Bytes memory, MemoryUse use, uint64_t chunk_bytes);

  const ChunkedMemory& chunked() const { return chunked_; }

 private:
  std::vector<Owned<ibv_mr>> registered_;
  ChunkedMemory chunked_;
};

}  // namespace gear::transport::verbs
