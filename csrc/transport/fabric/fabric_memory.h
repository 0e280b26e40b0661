#pragma once

#include <cstdint>
#include <vector>

#include "transport/fabric/fabric_endpoint.h"
#include "transport/one_sided/chunked_memory.h"

namespace gear::transport::fabric {

/// Memory that others read through an endpoint, or its reads fill. The memory and the endpoint are
/// the caller's and outlive it. Chunks of landing memory have descriptors as keys.
class FabricMemory {
 public:
  /// Throws TransportError, which names the bytes and what limits them.
  FabricMemory(const FabricEndpoint& endpoint, Bytes memory, MemoryUse use, uint64_t chunk_bytes);

  const ChunkedMemory& chunked() const { return chunked_; }

 private:
  std::vector<Fid<fid_mr>> registered_;
  ChunkedMemory chunked_;
};

}  // namespace gear::transport::fabric
