#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/threads/own_thread.h"
#include "transport/fabric/fabric_memory.h"
#include "transport/one_sided/device.h"

namespace gear::transport::fabric {

/// Memory that other ranks read through an endpoint of its own. Where the provider answers reads
/// only while its owner calls it (tcp), a thread sleeps in those calls.
class ExposedByFabric final : public Exposed {
 public:
  /// Throws TransportError.
  ExposedByFabric(std::shared_ptr<const FabricDomain> domain, Bytes memory, uint64_t chunk_bytes);
  ~ExposedByFabric() override;

  const ChunkedMemory& chunked() const noexcept override { return memory_->chunked(); }
  Opaque address() const override { return endpoint_.name(); }
  void renew(Bytes memory) override;

 private:
  void serve() const;

  FabricEndpoint endpoint_;
  uint64_t chunk_bytes_;
  std::optional<FabricMemory> memory_;
  std::atomic<bool> stop_{false};
  base::OwnThread thread_;  // none where the provider answers without it
};

}  // namespace gear::transport::fabric
