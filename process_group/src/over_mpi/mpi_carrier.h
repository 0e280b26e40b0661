#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/carrier.h"
#include "over_mpi/mpi_wire.h"

namespace gear::process_group {

/// By messages of MPI.
class MpiCarrier final : public Carrier {
 public:
  /// Of rank `rank` of the group `name`, collective over it as MpiWire. Collective calls send
  /// pieces of `segment_bytes`, the same on all ranks: a multiple of 64 below 2 GiB, else
  /// InvalidArgument.
  MpiCarrier(int rank, const std::vector<int>& world_ranks, const std::string& name,
             uint64_t segment_bytes, double timeout_s);

  std::shared_ptr<Call> begin(const Signature& signature, Schedule schedule,
                              double timeout_s) override;
  std::shared_ptr<Call> begin(const Letter& letter, double timeout_s) override;
  std::shared_ptr<NodeMemory> share_memory(bool wanted, double timeout_s) override;

 private:
  uint64_t segment_bytes_;
};

}  // namespace gear::process_group
