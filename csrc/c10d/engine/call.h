#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c10d/ranks/receive_order.h"
#include "c10d/ranks/roll_call.h"
#include "c10d/ranks/send_order.h"
#include "c10d/schedule/schedule.h"

namespace gear::c10d {

/// A process group, as its calls see it.
struct Ring {
  Ring(const std::vector<int>& world_ranks, std::string of_group)
      : name(std::move(of_group)), communicator(world_ranks, name), roll_call(communicator) {}

  const std::string name;
  Communicator communicator;
  RollCall roll_call;
  SendOrder sends;
  ReceiveOrder receives;
  Clock::time_point listened{};
};

enum class Step : uint8_t { kIdle, kMoved, kEnded };

/// An operation of this rank that the engine carries on. The engine's lock is held around all
/// virtual functions; `done` and `failure` are read without.
class Call {
 public:
  Call(std::shared_ptr<Ring> ring, Kind kind, double timeout_s)
      : ring_(std::move(ring)), kind_(kind), timeout_s_(timeout_s) {}
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Posts what can be posted, and looks at what has come. Throws TransportError.
  virtual Step advance() = 0;
  /// Past its time: the words with which it fails, or nothing if more time is needed to find them.
  virtual std::optional<std::string> late(Clock::time_point now) = 0;
  /// Sees to it that nothing is written to the caller's memory later.
  virtual void cancel() noexcept = 0;
  /// Of a collective call in its group; -1 of a message.
  virtual int64_t number() const noexcept { return -1; }
  /// Whether its failure ends the group.
  virtual bool shared() const noexcept { return true; }

  Ring& ring() noexcept { return *ring_; }
  Kind kind() const noexcept { return kind_; }
  double timeout_s() const noexcept { return timeout_s_; }
  /// From now on it may take so much longer, if that is less than it had.
  void limit(double timeout_s);
  /// The rank that a received message came from; -1 otherwise.
  int source() const noexcept { return source_; }

  Clock::time_point deadline = Clock::time_point::max();
  /// Called once, by whichever thread sees the end, without a lock: before and after `done` is set.
  std::function<void()> on_end;
  std::function<void()> on_done;
  std::string failure;  ///< empty: none
  std::atomic<bool> done{false};

 protected:
  /// The words of a call whose tensors a GPU has not given in time.
  std::string late_gpu() const;

  std::shared_ptr<Ring> ring_;
  Kind kind_;
  double timeout_s_;
  int source_ = -1;
};

/// A collective call: carries out a schedule, by messages of pieces.
class Collective final : public Call {
 public:
  /// Takes the group's next number; under the engine's lock, as everything. Pieces of
  /// `segment_bytes`, a multiple of 64 that all ranks share, travel several at a time: the next are
  /// on their way while one is reduced.
  Collective(std::shared_ptr<Ring> ring, Kind kind, Schedule schedule, uint64_t segment_bytes,
             double timeout_s);

  Step advance() override;
  std::optional<std::string> late(Clock::time_point now) override;
  void cancel() noexcept override;
  int64_t number() const noexcept override { return static_cast<int64_t>(number_); }

 private:
  struct Lane {
    uint64_t posted = 0;
    uint64_t ended = 0;
    int in_flight = 0;
    bool empty = false;  // nothing has come for it, when it was looked at
  };
  struct Piece {
    size_t lane;
    uint64_t begin;
    uint64_t length;
    std::unique_ptr<std::byte[]> room;  // where it is not sent from, or received into, in place
    bool awaited;                       // not come yet
  };

  bool fill();
  bool may_post(const Transfer& transfer, uint64_t begin) const;
  bool has_come_for(const Round& round) const;
  void post(size_t lane);
  uint64_t wire_bytes(const Piece& piece) const;
  bool look();
  bool test();
  void take(Piece& piece);
  void begin_round();
  [[noreturn]] void fail_size(int peer, uint64_t bytes, uint64_t expected) const;

  uint64_t number_;
  int tag_;
  Schedule schedule_;
  uint64_t segment_bytes_;
  size_t round_ = 0;
  bool round_begun_ = false;
  std::vector<Lane> lanes_;
  std::vector<Piece> pieces_;  // under way, as requests_
  std::vector<MPI_Request> requests_;
  std::vector<int> ended_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace gear::c10d
