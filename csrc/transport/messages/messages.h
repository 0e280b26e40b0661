#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "transport/failure.h"
#include "transport/messages/mail.h"
#include "transport/transport.h"

namespace gear::transport::messages {

/// "libfabric" or "mpi": messages between ranks in Frames of that engine.
///
/// Ranks reach each other when they first have something to say. An allgather is a dissemination,
/// ceil(log2 R) rounds in which rank r hears from r - 1, r - 2, r - 4, ..: so a rank talks to
/// 2 log2 R others, and to those it exchanges rows with. What an exchange of many ranks is to bring
/// goes the same way first, unless all know it.
///
/// A rank whose wait is about to run out asks whom it waits for, and whom those say that they wait
/// for: who answers is there, and is not accused. What ends one rank's call is passed on to the
/// others, by way of each other where there are many. A rank whose Mail is gone has said so. One
/// that has ended is named within seconds where its Mail can tell.
///
/// Calls are collective, one thread at a time. A call returns once what it sends has left.
class Messages final : public Transport, private Failure::Listener {
 public:
  /// `mail` knows the ranks. `failure`: of the rank's group; null: of these alone. Throws
  /// InvalidArgument.
  Messages(std::shared_ptr<Mail> mail, uint32_t rank, uint32_t size, double timeout_s,
           std::shared_ptr<Failure> failure = nullptr);
  ~Messages() override;

  std::string_view name() const noexcept override { return mail_->name(); }
  uint32_t rank() const noexcept override { return rank_; }
  uint32_t size() const noexcept override { return size_; }
  double timeout_s() const noexcept override { return timeout_s_; }
  void set_timeout_s(double timeout_s) override;
  void look() override;
  void allgather(ConstBytes mine, Bytes all) override;
  using Transport::exchange;
  std::span<const ConstBytes> exchange(std::span<const ConstBytes> to,
                                       std::span<const uint64_t> sizes) override;
  std::span<const ConstBytes> exchange_sparse(std::span<const ConstBytes> to,
                                              std::span<const uint8_t> from) override;
  std::vector<uint32_t> present(double wait_s) override;
  /// It shares the Mail.
  std::unique_ptr<Transport> duplicate() override;
  void allgather_among(std::span<const uint32_t> ranks, ConstBytes mine, Bytes all) override;
  std::vector<uint32_t> awaited() override;
  std::unique_ptr<RollCall> roll_call() override;

 private:
  /// Ranks that hear from each other, round by round.
  struct Circle {
    std::span<const uint32_t> ranks;
    uint32_t place;  ///< of this rank

    uint32_t size() const { return static_cast<uint32_t>(ranks.size()); }
    uint32_t ahead(uint32_t distance) const { return ranks[(place + distance) % size()]; }
    uint32_t behind(uint32_t distance) const { return ranks[(place + size() - distance) % size()]; }
  };
  struct Outgoing {
    uint32_t rank;
    uint32_t round;
    ConstBytes bytes;
    uint64_t begun = 0;
    bool all = false;
  };

  Messages(std::shared_ptr<Mail> mail, uint64_t channel, uint32_t rank, uint32_t size,
           double timeout_s, std::shared_ptr<Failure> failure);

  void hear(const std::string& text) noexcept override;
  void finish() noexcept override;

  /// Runs `body` as a call of `kind`; what it throws ends the group.
  template <class Body>
  void run(FrameKind kind, const Body& body);
  void begin(FrameKind kind);
  void end();

  Circle everyone() const { return {ranks_, rank_}; }
  void disseminate(const Circle& circle, ConstBytes mine, Bytes all);
  void pass(std::span<const ConstBytes> to, std::span<const uint64_t> sizes);
  std::vector<uint64_t> told_sizes(std::span<const ConstBytes> to);
  std::vector<uint64_t> exchange_words(std::vector<uint64_t> words);

  void send(uint32_t rank, uint32_t round, ConstBytes bytes);
  /// The message of `round` from whom it comes, which the others learn that this rank waits for.
  Message receive(const Circle& circle, uint32_t round);
  /// Until has_ended() says so, which is called under the mail's mutex and takes messages, and
  /// awaited() is empty. Throws TransportError.
  template <class HasEnded, class Awaited>
  void wait(const HasEnded& has_ended, const Awaited& awaited);
  /// Whether that was anything.
  bool push();
  bool all_left() const;
  void sleep(double at_most_s);

  std::shared_ptr<Mail> mail_;
  std::shared_ptr<Failure> failure_;
  uint32_t rank_;
  uint32_t size_;
  std::vector<uint32_t> ranks_;  ///< all of them
  double timeout_s_;
  Channel* channel_;
  uint64_t num_duplicates_ = 0;
  std::chrono::steady_clock::time_point deadline_;
  std::vector<Outgoing> outgoing_;
  std::vector<Message> received_;  // by rank, of the last exchange
  std::vector<ConstBytes> spans_;
  std::unique_ptr<Failure::Hearing> hearing_;
};

}  // namespace gear::transport::messages
