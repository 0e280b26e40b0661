#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/fabric/fabric_memory.h"
#include "transport/one_sided/device.h"

namespace gear::transport::fabric {

/// One endpoint, with a lane to each partner. Every read has a completion of its own: providers end
/// reads in any order.
class FabricLanes final : public Lanes {
 public:
  /// Reads what others expose through the endpoints that `names` name, by rank.
  FabricLanes(const std::shared_ptr<const FabricDomain>& domain, std::vector<Opaque> names,
              std::vector<uint8_t> partners, uint64_t chunk_bytes);

  const Limits& limits() const noexcept override { return limits_; }
  Opaque introduction(uint32_t) const override { return {}; }
  void connect(std::span<const Opaque> others) override;
  ChunkedMemory land_in(Bytes memory) override;
  uint32_t post(uint32_t lane, std::span<const Piece> chain) override;
  std::span<const Ended> ended() override;
  std::string way(uint32_t owner) const override;

 private:
  /// Of a read under way; libfabric may keep what it needs in `context`.
  struct Slot {
    fi_context2 context;
    uint32_t lane;
  };

  Ended end(void* context);
  void end_failed();

  std::vector<Opaque> names_;
  std::vector<uint8_t> partners_;
  uint64_t chunk_bytes_;
  FabricEndpoint endpoint_;
  Limits limits_{};
  std::optional<FabricMemory> landing_;
  std::vector<fi_addr_t> owners_;  ///< by rank; of partners
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<fi_cq_entry> entries_;
  std::vector<Ended> ended_;
};

}  // namespace gear::transport::fabric
