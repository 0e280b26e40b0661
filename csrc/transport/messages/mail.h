#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "memory/rooms.h"
#include "transport/messages/frames.h"
#include "transport/messages/neighbour.h"
#include "transport/transport.h"

namespace gear::transport::messages {

/// A message that has come, or of which frames have.
struct Message {
  FrameKind kind;
  memory::Room room;
  uint64_t total = 0;
  uint64_t arrived = 0;

  bool whole() const { return arrived == total; }
  ConstBytes bytes() const { return {room.get(), static_cast<size_t>(total)}; }
};

/// What one transport of this rank has from the others. Its fields are read and written under
/// Mail::mutex().
struct Channel {
  struct Key {
    uint64_t call;
    uint32_t round;
    uint32_t source;
    auto operator<=>(const Key&) const = default;
  };

  Channel(uint64_t channel_id, uint32_t size) : id(channel_id), leaving(size) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Whether all that this channel sends there has left. What others send may stay for as long as
  /// that rank is in no call of theirs.
  bool has_sent(uint32_t rank) const { return leaving[rank] == 0; }

  uint64_t id;
  int woken = -1;  ///< an eventfd, for a thread that sleeps; -1: none does
  bool sleeps = false;
  bool news = false;  ///< something has come since its thread looked last
  bool closed = false;

  uint64_t call = 0;  ///< that this rank is in, or was in last
  FrameKind kind = FrameKind::kAllgather;
  FrameKind former = FrameKind::kAllgather;  ///< of the call before
  bool in_call = false;
  std::vector<uint32_t> awaited;  ///< told to those that ask

  std::vector<uint32_t> leaving;  ///< frames, by rank; stays where it is, as long as the Mail does
  std::map<Key, Message> messages;
  std::map<uint32_t, std::vector<uint32_t>> answers;  ///< by rank: whom it waits for
  std::map<uint32_t, uint64_t> askers;  ///< rank -> call that this one was not in when asked
  std::string fault;                    ///< what has come amiss
};

/// The frames of a rank, shared by its transports: sorts what comes by channel, and answers those
/// that ask whether this rank is there. Whichever thread waits lets it work.
class Mail {
 public:
  /// In which words reach a busy rank to which nothing has gone before.
  static constexpr std::chrono::milliseconds kLastWords{3000};

  /// `token`: of the launch, the same on all ranks and on no others.
  Mail(std::unique_ptr<Frames> frames, uint64_t token);
  /// Tells the ranks that hear from this one in an allgather that it makes no more calls; what they
  /// wait for may be this rank. Or finishes telling. A forked child tells nobody, nor does a rank
  /// whose frames must be taken.
  ~Mail();
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;

  /// Once, before all else.
  void know(uint32_t rank, uint32_t size, const std::vector<Neighbour>& neighbours = {});

  std::string_view name() const noexcept { return frames_->name(); }
  Patience patience() const noexcept { return frames_->patience(); }

  std::mutex& mutex() { return mutex_; }

  // What follows is called under mutex().

  Channel& channel(uint64_t id);
  /// One whose thread may sleep. Throws TransportError.
  Channel& open(uint64_t id);
  static void close(Channel& channel);

  /// Sends up to a frame of `message` from `offset` on; returns how many bytes of it went, or -1:
  /// none, now.
  int64_t send(uint32_t rank, Channel& channel, uint32_t round, ConstBytes message,
               uint64_t offset);
  /// Whether anything happened. `own`: of the thread that calls, which needs no waking.
  bool progress(const Channel* own);

  /// A frame without a message; goes when it can.
  void ask(uint32_t rank, const Channel& channel);
  /// Says for whom `channel` waits, for whom it has begun to, to those that asked before.
  void answer_askers(Channel& channel);
  void tell(uint32_t rank, std::string_view words);
  /// Whether none of this rank's transports has told yet; the next call returns false.
  bool first_telling();
  /// Waits, no longer than that, until those have gone, but to ranks that have ended.
  void linger(std::chrono::milliseconds at_most) noexcept;
  /// The same until kLastWords after the first telling, if this rank has told and its frames may go
  /// unread.
  void finish_telling() noexcept;

  /// With which a rank has given up; empty: none has.
  const std::string& words() const { return words_; }
  /// Whether that rank has told that it makes no more calls.
  bool has_left(uint32_t rank) const { return left_.contains(rank); }
  /// From here on has_ended() may know of these ranks, too.
  void watch(std::span<const uint32_t> ranks);
  /// Whether a rank has ended, as far as can be seen from here: its process, where it is of this
  /// machine; else at least what it sends frames with.
  bool has_ended(uint32_t rank);
  /// Its process, where it is of this machine.
  std::optional<int64_t> pid_of(uint32_t rank) const;
  /// Frames of other launches, which were dropped.
  uint64_t num_foreign() const { return num_foreign_; }

  FrameCounts counts() const { return frames_->counts(); }
  /// Of messages; without the mutex, too.
  memory::Rooms& rooms() { return rooms_; }

  /// Makes `channel` one that sleeps, if there is nothing to do.
  bool may_sleep(Channel& channel);
  int wait_file() const { return frames_->wait_file(); }

 private:
  struct Control {
    uint32_t rank;
    FrameHead head;
    std::vector<std::byte> bytes;
  };

  FrameHead head(FrameKind kind, uint64_t channel, uint64_t call) const;
  void queue(uint32_t rank, FrameHead head, ConstBytes bytes);
  bool send_controls();
  void sort(const FrameHead& head, ConstBytes bytes, const Channel* own);
  void answer(const FrameHead& asked);
  void answer(uint32_t rank, const Channel& channel, uint64_t asked_call);
  void deliver(Channel& channel, const FrameHead& head, ConstBytes bytes);
  bool all_gone();
  static void wake(Channel& channel);
  void wake_all();

  std::mutex mutex_;
  memory::Rooms rooms_;
  std::unique_ptr<Frames> frames_;
  uint64_t token_;
  uint32_t rank_ = 0;
  uint32_t size_ = 0;
  std::map<uint64_t, std::unique_ptr<Channel>> channels_;
  std::deque<Control> controls_;
  std::vector<uint32_t> controls_leaving_;  ///< by rank
  std::set<uint32_t> ended_;                ///< ranks of this machine
  std::string words_;
  std::optional<std::chrono::steady_clock::time_point> told_;  ///< when it told first
  uint64_t num_foreign_ = 0;
  int64_t pid_;
  std::set<uint32_t> left_;
  std::map<uint32_t, memory::ProcessIdentity> neighbours_;  ///< by rank
};

}  // namespace gear::transport::messages
