#include "group/read_board.h"

#include <algorithm>

#include "memory/shared/shared_region.h"

namespace gear::group {

ReadBoard::ReadBoard(const Peers& peers, uint64_t loader, transport::Transport& control)
    : processes_([&] {
        std::vector<memory::ProcessIdentity> all;
        for (uint32_t r = 0; r < peers.size(); ++r) {
          all.push_back(peers.process(r));
        }
        return all;
      }()),
      counters_(peers.size()),
      asked_(peers.size()),
      rank_(peers.rank()) {
  constexpr std::string_view kNoSchema = "0000000000000000";
  const auto same_node = [&](uint32_t r) { return peers.nodes()[r] == peers.nodes()[rank_]; };
  counters_[rank_] =
      memory::SharedRegion::create(peers.shared_name(rank_, loader), sizeof(uint64_t), kNoSchema);
  const std::byte made{1};
  std::vector<std::byte> all(peers.size());
  control.allgather({&made, 1}, all);
  for (uint32_t r = 0; r < peers.size(); ++r) {
    if (r == rank_ || !same_node(r)) {
      continue;
    }
    counters_[r] = memory::SharedRegion::attach(peers.shared_name(r, loader), kNoSchema);
  }
  control.allgather({&made, 1}, all);  // all have attached
  counters_[rank_]->hide_name();
}

void ReadBoard::passed(uint64_t number) {
  const std::atomic_ref counter(*reinterpret_cast<uint64_t*>(counters_[rank_]->data()));
  if (number > counter.load(std::memory_order_relaxed)) {
    counter.store(number, std::memory_order_release);
  }
}

bool ReadBoard::has_passed(uint32_t rank, uint64_t number) const {
  const auto* counter = reinterpret_cast<uint64_t*>(counters_[rank]->data());
  if (std::atomic_ref(*const_cast<uint64_t*>(counter)).load(std::memory_order_acquire) >= number) {
    return true;
  }
  // Asked every 50 us by a writer that waits, and slower than that to answer.
  constexpr uint32_t kLookEvery = 64;
  return ++asked_[rank] % kLookEvery == 0 &&
         memory::liveness(processes_[rank]) == memory::Liveness::kEnded;
}

bool ReadersEnd::done() const noexcept {
  return std::ranges::all_of(readers_,
                             [&](uint32_t rank) { return board_->has_passed(rank, number_ + 1); });
}

}  // namespace gear::group
