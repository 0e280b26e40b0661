#include "group/peers/read_board.h"

#include <algorithm>
#include <chrono>

#include "base/errors.h"
#include "memory/shared/shared_region.h"
#include "memory/tiers.h"
#include "transport/on_all.h"

namespace gear::group {

ReadBoard::ReadBoard(const Peers& peers, uint64_t loader, transport::Transport& control)
    : counters_(peers.size()),
      readers_(peers.size()),
      rank_(peers.rank()),
      timeout_s_(control.timeout_s()) {
  for (uint32_t r = 0; r < peers.size(); ++r) {
    readers_[r].process = peers.process(r);
  }
  constexpr std::string_view kNoSchema = "0000000000000000";
  const auto same_node = [&](uint32_t r) { return peers.nodes()[r] == peers.nodes()[rank_]; };
  transport::on_all(control, [&] {
    counters_[rank_] =
        memory::SharedRegion::create(peers.shared_name(rank_, loader), sizeof(uint64_t), kNoSchema);
  });
  transport::on_all(control, [&] {
    for (uint32_t r = 0; r < peers.size(); ++r) {
      if (r != rank_ && same_node(r)) {
        counters_[r] = memory::SharedRegion::attach(peers.shared_name(r, loader), kNoSchema);
      }
    }
  });
  counters_[rank_]->hide_name();
}

void ReadBoard::passed(uint64_t number) {
  const std::atomic_ref counter(*reinterpret_cast<uint64_t*>(counters_[rank_]->data()));
  if (number > counter.load(std::memory_order_relaxed)) {
    counter.store(number, std::memory_order_release);
  }
}

uint64_t* ReadBoard::passed_by_gpu(int device) {
  counters_[rank_] = memory::pin_region(std::move(counters_[rank_]), device);
  return reinterpret_cast<uint64_t*>(counters_[rank_]->device_data());
}

bool ReadBoard::has_passed(uint32_t rank, uint64_t number) const noexcept {
  const auto* counter = reinterpret_cast<uint64_t*>(counters_[rank]->data());
  if (std::atomic_ref(*const_cast<uint64_t*>(counter)).load(std::memory_order_acquire) >= number) {
    return true;
  }
  return has_ended(rank);
}

void ReadBoard::check_waited(std::span<const uint32_t> readers, uint64_t number,
                             std::chrono::duration<double> time) const {
  if (time.count() < timeout_s_) {
    return;
  }
  for (const uint32_t rank : readers) {
    if (!has_passed(rank, number)) {
      throw base::TransportError(base::cat(
          "[writer] rank ", rank, " (pid ", readers_[rank].process.pid, ") has read a page for ",
          timeout_s_, " s that a writer of rank ", rank_,
          " waits for: look whether it is stopped, ", "or raise timeout_s (GEAR_TIMEOUT_S)"));
    }
  }
}

// A writer that waits asks every 50 us, which is less than it takes to look.
bool ReadBoard::has_ended(uint32_t rank) const noexcept {
  constexpr std::chrono::nanoseconds kLookEvery = std::chrono::milliseconds(5);
  Reader& reader = readers_[rank];
  if (reader.ended.load(std::memory_order_relaxed)) {
    return true;
  }
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  if (now.count() < reader.look_from.load(std::memory_order_relaxed)) {
    return false;
  }
  const bool ended = memory::liveness(reader.process) == memory::Liveness::kEnded;
  reader.ended.store(ended, std::memory_order_relaxed);
  reader.look_from.store((now + kLookEvery).count(), std::memory_order_relaxed);
  return ended;
}

bool ReadersEnd::done() const noexcept {
  return std::ranges::all_of(readers_,
                             [&](uint32_t rank) { return board_->has_passed(rank, number_ + 1); });
}

}  // namespace gear::group
