#include "transport/verbs/registered_memory.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/errors.h"

namespace gear::transport::verbs {

RegisteredMemory::RegisteredMemory(const VerbsPort& port, Bytes memory, MemoryUse use,
                                   uint64_t chunk_bytes) {
  const VerbsLibrary& library = port.library();
  const uint64_t most = port.limits().max_mr_size;
  const int access = use == MemoryUse::kExposed ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_LOCAL_WRITE;
  std::vector<MemoryChunk> chunks;
  uint64_t done = 0;
  for (const Bytes piece :
       pieces_of(memory, most == 0 ? chunk_bytes : std::min(chunk_bytes, most))) {
    auto registered =
        own(library.reg_mr(port.domain(), piece.data(), piece.size(), access), library.dereg_mr);
    if (!registered) {
      throw base::TransportError(
          not_registered_text(port.device_name(), done, memory.size(), base::errno_text(errno)));
    }
    done += piece.size();
    chunks.push_back({reinterpret_cast<uint64_t>(piece.data()), piece.size(),
                      use == MemoryUse::kExposed ? registered->rkey : registered->lkey});
    registered_.push_back(std::move(registered));
  }
  chunked_ = ChunkedMemory(std::move(chunks));
}

}  // namespace gear::transport::verbs
