#include "transport/fabric/exposed_by_fabric.h"

#include <array>
#include <chrono>
#include <thread>
#include <utility>

namespace gear::transport::fabric {
namespace {

constexpr size_t kQueueDepth = 256;  // it reads nothing itself
constexpr int kSleepMs = 100;        // where the end is not signalled
constexpr std::chrono::microseconds kNap{200};

}  // namespace

ExposedByFabric::ExposedByFabric(std::shared_ptr<const FabricDomain> domain, Bytes memory,
                                 uint64_t chunk_bytes)
    : endpoint_(std::move(domain), kQueueDepth, true), chunk_bytes_(chunk_bytes) {
  memory_.emplace(endpoint_, memory, MemoryUse::kExposed, chunk_bytes_);
  if (endpoint_.domain().info()->domain_attr->data_progress == FI_PROGRESS_MANUAL) {
    thread_ = base::OwnThread("gear-fabric", [this] { serve(); });
  }
}

ExposedByFabric::~ExposedByFabric() {
  stop_ = true;
  if (endpoint_.waits()) {
    ::fi_cq_signal(endpoint_.completions());
  }
}

void ExposedByFabric::renew(Bytes memory) {
  memory_.reset();  // both at once may be more than this process may lock
  memory_.emplace(endpoint_, memory, MemoryUse::kExposed, chunk_bytes_);
}

// Completions are none of this rank's: errors of readers that went away, at most.
void ExposedByFabric::serve() const {
  std::array<fi_cq_entry, 8> entries;
  while (!stop_) {
    const ssize_t count =
        endpoint_.waits() ? ::fi_cq_sread(endpoint_.completions(), entries.data(), entries.size(),
                                          nullptr, kSleepMs)
                          : ::fi_cq_read(endpoint_.completions(), entries.data(), entries.size());
    if (count == -FI_EAVAIL) {
      fi_cq_err_entry failed{};
      static_cast<void>(::fi_cq_readerr(endpoint_.completions(), &failed, 0));
    } else if (count < 0 && !(endpoint_.waits() && count == -FI_EAGAIN)) {
      std::this_thread::sleep_for(kNap);
    }
  }
}

}  // namespace gear::transport::fabric
