#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace gear::store {

/// When a read ends that no thread waits for: that of a GPU.
class ReadEnd {
 public:
  virtual ~ReadEnd() = default;
  /// From any thread. True on a lost GPU too.
  virtual bool done() const noexcept = 0;
  /// A writer waits for it: a read that was put off is to begin. From that writer's thread, which
  /// does not hold the shard's lock; must not call the shard.
  virtual void hurry() const noexcept {}
  /// A writer has waited for it so long: throws TransportError where nobody should wait longer.
  /// From that writer's thread, as hurry().
  virtual void waited(std::chrono::duration<double> time) const { static_cast<void>(time); }
};

/// Which batches still read pages that were planned for them: a page that was evicted is written
/// again only when every ticket issued before the eviction is back.
///
///     clock        1      2      3      4
///     tickets      ├── a ────────────┤
///                         ├── b ─┤
///     page evicted            ^ at 2: reused when a and b are back
///
/// Has a lock of its own, so that a copy that ends need not wait for a selection: taken inside the
/// shard's. Any thread.
class ReadTickets {
 public:
  /// Tickets ascend. Under the shard's lock.
  void begin(uint64_t ticket);
  void end(uint64_t ticket);
  /// The ticket is given back by the first call of this kind after the read has ended, so that no
  /// more are kept than are under way; a writer that waits for it looks too.
  void end_when(uint64_t ticket, std::shared_ptr<const ReadEnd> end);
  /// Whether every ticket issued up to this clock is back. Under the shard's lock.
  bool passed(uint64_t clock);
  /// Waits until it is, until ReadEnd::waited throws or the host program is interrupted
  /// (base::check_interrupt). Without the shard's lock.
  void wait_passed(uint64_t clock);

  /// Around a fork, under the shard's lock: nobody changes the tickets in between.
  void pause() { mutex_.lock(); }
  void resume() { mutex_.unlock(); }
  /// In the forked child, behind it: those who waited are not there.
  void renew();

 private:
  using Ending = std::pair<uint64_t, std::shared_ptr<const ReadEnd>>;

  void give_back(uint64_t ticket);
  /// Those that have ended go to `gone`, to be freed without the lock.
  void poll_ended(std::vector<Ending>& gone);
  bool back(uint64_t clock) const { return open_.empty() || open_.front() > clock; }

  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<uint64_t> open_;  // ascending
  std::vector<Ending> ending_;  // of those
};

/// A ticket: while it is open, the pages that were in use when it was issued are not written again.
/// The tickets outlive it. Ends, or is told when it will, in any thread.
class Read {
 public:
  Read() = default;
  Read(ReadTickets& tickets, uint64_t ticket) : tickets_(&tickets), ticket_(ticket) {}
  ~Read() { end(); }
  Read(Read&& other) noexcept
      : tickets_(std::exchange(other.tickets_, nullptr)), ticket_(other.ticket_) {}
  Read& operator=(Read&& other) noexcept {
    end();
    tickets_ = std::exchange(other.tickets_, nullptr);
    ticket_ = other.ticket_;
    return *this;
  }

  bool open() const { return tickets_ != nullptr; }
  void end() {
    if (ReadTickets* const tickets = std::exchange(tickets_, nullptr)) {
      tickets->end(ticket_);
    }
  }
  void end_when(std::shared_ptr<const ReadEnd> ended) {
    tickets_->end_when(ticket_, std::move(ended));
    tickets_ = nullptr;
  }

 private:
  ReadTickets* tickets_ = nullptr;
  uint64_t ticket_ = 0;
};

}  // namespace gear::store
