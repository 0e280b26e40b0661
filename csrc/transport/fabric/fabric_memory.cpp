#include "transport/fabric/fabric_memory.h"

#include <utility>

#include "base/errors.h"

namespace gear::transport::fabric {

FabricMemory::FabricMemory(const FabricEndpoint& endpoint, Bytes memory, MemoryUse use,
                           uint64_t chunk_bytes) {
  const FabricDomain& domain = endpoint.domain();
  const bool exposed = use == MemoryUse::kExposed;
  const bool registers = exposed || domain.demands(FI_MR_LOCAL);
  std::vector<MemoryChunk> chunks;
  uint64_t done = 0;
  for (const Bytes piece : pieces_of(memory, chunk_bytes)) {
    const auto address = reinterpret_cast<uint64_t>(piece.data());
    MemoryChunk& chunk = chunks.emplace_back(MemoryChunk{address, piece.size(), 0});
    if (!registers) {
      continue;
    }
    fid_mr* opened = nullptr;
    int code =
        ::fi_mr_reg(domain.domain(), piece.data(), piece.size(), exposed ? FI_REMOTE_READ : FI_READ,
                    0, domain.next_key(), 0, &opened, nullptr);
    Fid<fid_mr> registered(opened);
    if (code == 0 && domain.demands(FI_MR_ENDPOINT)) {
      code = ::fi_mr_bind(registered.get(), &endpoint.endpoint()->fid, 0);
      code = code == 0 ? ::fi_mr_enable(registered.get()) : code;
    }
    if (code < 0) {
      throw base::TransportError(not_registered_text(domain.text(), done, memory.size(),
                                                     domain.library().strerror(-code)));
    }
    done += piece.size();
    if (!exposed) {
      chunk.key = reinterpret_cast<uint64_t>(::fi_mr_desc(registered.get()));
    } else {
      chunk.key = ::fi_mr_key(registered.get());
      chunk.address = domain.demands(FI_MR_VIRT_ADDR) ? address : 0;
    }
    registered_.push_back(std::move(registered));
  }
  chunked_ = ChunkedMemory(std::move(chunks));
}

}  // namespace gear::transport::fabric
