#include "transport/one_sided/chunked_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "base/errors.h"

namespace gear::transport {
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
  return {chunk.address + inside, chunk.bytes - inside, chunk.key};
}

ChunkedMemory memory_of(uint32_t rank, std::vector<MemoryChunk> chunks) {
  const uint64_t first = chunks.empty() ? 0 : chunks[0].bytes;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const uint64_t bytes = chunks[i].bytes;
    const bool is_last = i + 1 == chunks.size();
    if (bytes == 0 || (is_last ? bytes > first : bytes != first) ||
        first > UINT64_MAX / chunks.size()) {
      throw base::TransportError(base::cat(
          "[transport] rank ", rank, " exposes memory in ", chunks.size(), " chunks, of which ", i,
          " has ", bytes, " bytes and the first one ", first, ": all but the last have as many, ",
          "and none has no bytes; ranks of one group must run the same build"));
    }
  }
  return ChunkedMemory(std::move(chunks));
}

std::vector<Bytes> pieces_of(Bytes memory, uint64_t most_bytes) {
  const uint64_t step = std::max(most_bytes / kPage * kPage, kPage);
  std::vector<Bytes> pieces;
  for (uint64_t begin = 0; begin < memory.size(); begin += step) {
    pieces.push_back(memory.subspan(begin, std::min(step, memory.size() - begin)));
  }
  return pieces;
}

std::string not_registered_text(std::string_view device, uint64_t done, uint64_t bytes,
                                std::string_view why) {
  return base::cat("[transport] ", device, " registers ", done, " of ", bytes,
                   " bytes, and then fails (", why, "): this process may lock ", lock_limit(),
                   " of memory; raise the limit (ulimit -l, LimitMEMLOCK of slurmd), or use less "
                   "memory");
}

}  // namespace gear::transport
