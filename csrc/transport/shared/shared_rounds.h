#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory/region.h"
#include "transport/failure.h"
#include "transport/shared/shared_layout.h"

namespace gear::transport {

/// One rank's membership in a region laid out by SharedLayout: its rounds, and how it waits for
/// those of others. A failure, its own or another rank's, is for good.
class SharedRounds final : private Failure::Listener {
 public:
  /// Takes the place of `rank` and waits until all have; rank 0 opens the lobby. Throws
  /// InvalidArgument if the place is taken or the region is for another number of ranks.
  /// `known_as`: what words of errors call the ranks; empty: by their numbers here.
  SharedRounds(std::shared_ptr<memory::Region> region, uint32_t rank, uint32_t size,
               double timeout_s, std::shared_ptr<Failure> failure,
               std::vector<uint32_t> known_as = {});
  /// Leaves: others that wait for this rank throw. A forked child leaves nothing.
  ~SharedRounds();
  SharedRounds(const SharedRounds&) = delete;
  SharedRounds& operator=(const SharedRounds&) = delete;

  uint32_t rank() const noexcept { return rank_; }
  uint32_t size() const noexcept { return size_; }
  double timeout_s() const noexcept { return timeout_s_; }
  void set_timeout_s(double timeout_s);
  const SharedLayout& layout() const noexcept { return layout_; }
  const std::shared_ptr<Failure>& failure() const noexcept { return failure_; }
  const std::vector<uint32_t>& known_as() const noexcept { return known_as_; }
  uint32_t known(uint32_t rank) const noexcept {
    return known_as_.empty() ? rank : known_as_[rank];
  }

  /// The outbox to fill for the next round, which is one of `call`. Throws TransportError if the
  /// transport has failed.
  Outbox& begin(Call call);
  /// Lets the others read it.
  void publish();
  /// That of `rank` in this round. Waits for it, until the time is up, the rank's group has failed
  /// or the host program is interrupted (base::check_interrupt).
  Outbox& await(uint32_t rank) { return await_round(rank, round_); }
  /// The same of the round behind this one, which `rank` begins when all have published this one.
  Outbox& await_next(uint32_t rank) { return await_round(rank, round_ + 1); }
  /// Ranks that have not published this round; where all have, the one that await_next waits for.
  std::vector<uint32_t> awaited() const;

  /// Throws TransportError if the transport has failed. Any thread.
  void throw_if_failed() const;

  /// Tells all ranks, and throws; if another failure came first, that one.
  [[noreturn]] void fail(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  Member& member(uint32_t rank) const { return layout_.member(region_->data(), rank); }
  Lobby& lobby() const { return layout_.lobby(region_->data()); }
  void hear(const std::string& text) noexcept override;
  void check_interrupt() const;
  Outbox& await_round(uint32_t rank, uint32_t round);
  void look_for(uint32_t awaited, uint32_t round);
  void look_at(uint32_t rank, uint32_t awaited, uint32_t round);
  void join();
  bool find_crowded() const;

  std::shared_ptr<memory::Region> region_;
  SharedLayout layout_;
  uint32_t rank_;
  uint32_t size_;
  double timeout_s_;
  int64_t pid_;
  uint32_t round_ = 0;
  Call call_ = Call::kStart;
  std::optional<Clock::time_point> deadline_;  ///< of this round, once it waits long
  bool crowded_ = false;                       ///< fewer CPUs than ranks
  uint32_t looked_at_ = 0;
  uint32_t waits_for_ = 0;  ///< in await_round, last
  std::shared_ptr<Failure> failure_;
  std::vector<uint32_t> known_as_;
  Failure::Hearing hearing_;
};

}  // namespace gear::transport
