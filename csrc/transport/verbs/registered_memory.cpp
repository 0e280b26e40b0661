#include "transport/verbs/registered_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/errors.h"

namespace gear::transport::verbs {
namespace {

constexpr uint64_t kPage = 4096;

std::string lock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "unlimited";
  }
  return base::cat(limit.rlim_cur, " bytes");
}

}  // namespace

uint64_t ChunkedMemory::bytes() const {
  uint64_t sum = 0;
  for (const MemoryChunk& one : chunks_) {
    sum += one.bytes;
  }
  return sum;
}

MemoryChunk ChunkedMemory::from(uint64_t offset) const {
  const MemoryChunk& chunk = chunks_[offset / chunks_[0].bytes];
  const uint64_t inside = offset % chunks_[0].bytes;
  return {chunk.address + inside, chunk.bytes - inside, chunk.key, 0};
}

RegisteredMemory::RegisteredMemory(const VerbsPort& port, Bytes memory, Use use,
                                   uint64_t chunk_bytes) {
  const VerbsLibrary& library = port.library();
  const uint64_t most = port.limits().max_mr_size;
  uint64_t step = most == 0 ? chunk_bytes : std::min(chunk_bytes, most);
  step = std::max(step / kPage * kPage, kPage);
  const int access = use == Use::kExposed ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_LOCAL_WRITE;
  std::vector<MemoryChunk> chunks;
  for (uint64_t begin = 0; begin < memory.size(); begin += step) {
    const Bytes piece = memory.subspan(begin, std::min(step, memory.size() - begin));
    auto registered =
        own(library.reg_mr(port.domain(), piece.data(), piece.size(), access), library.dereg_mr);
    if (!registered) {
      throw base::TransportError(base::cat(
          "[transport] ", port.device_name(), " registers ", begin, " of ", memory.size(),
          " bytes, and then fails (", base::errno_text(errno), "): this process may lock ",
          lock_limit(),
          " of memory; raise the limit (ulimit -l, LimitMEMLOCK of slurmd), or use less memory"));
    }
    chunks.push_back({reinterpret_cast<uint64_t>(piece.data()), piece.size(),
                      use == Use::kExposed ? registered->rkey : registered->lkey, 0});
    registered_.push_back(std::move(registered));
  }
  chunked_ = ChunkedMemory(std::move(chunks));
}

}  // namespace gear::transport::verbs
