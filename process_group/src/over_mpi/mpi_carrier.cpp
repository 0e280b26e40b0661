#include "over_mpi/mpi_carrier.h"

#include <utility>

#include "base/errors.h"
#include "engine/collective.h"
#include "engine/engine.h"
#include "engine/message.h"
#include "over_mpi/node_memory.h"

namespace gear::process_group {
namespace {

constexpr uint64_t kSegments = 8;  // of a piece, which costs a GPU more than a message costs MPI

uint64_t checked(uint64_t segment_bytes) {
  if (segment_bytes == 0 || segment_bytes % 64 != 0 || segment_bytes >= uint64_t{1} << 31) {
    throw base::InvalidArgument(base::cat("[mpi] pieces of ", segment_bytes,
                                          " bytes: a multiple of 64 below 2 GiB is allowed"));
  }
  return segment_bytes;
}

}  // namespace

MpiCarrier::MpiCarrier(int rank, const std::vector<int>& world_ranks, const std::string& name,
                       uint64_t segment_bytes, double timeout_s)
    : Carrier(std::make_shared<Ring>(name, Place{rank, static_cast<int>(world_ranks.size())},
                                     world_ranks,
                                     std::make_unique<MpiWire>(world_ranks, name, timeout_s))),
      segment_bytes_(checked(segment_bytes)) {
  GEAR_CHECK(ring_->wire->place().rank == rank);
}

std::shared_ptr<Call> MpiCarrier::begin(const Signature& signature, Schedule schedule,
                                        double timeout_s) {
  return std::make_shared<Collective>(ring_, signature, std::move(schedule), segment_bytes_,
                                      timeout_s);
}

std::shared_ptr<Call> MpiCarrier::begin(const Letter& letter, double timeout_s) {
  return std::make_shared<Message>(ring_, letter, timeout_s);
}

std::shared_ptr<NodeMemory> MpiCarrier::share_memory(bool wanted, double timeout_s) {
  try {
    return NodeMemory::make(static_cast<const MpiWire&>(*ring_->wire).ranks(), place(), wanted,
                            kSegments * segment_bytes_, timeout_s);
  } catch (...) {  // what ranks do together there may still be under way
    Engine::instance().exclusively([&] {
      ring_->group.fail(
          "[mpi] the ranks of this group did not agree on the memory of their node: make another");
    });
    throw;
  }
}

}  // namespace gear::process_group
