#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/call.h"
#include "memory/rooms.h"
#include "ranks/comparison.h"
#include "schedule/schedule.h"

namespace gear::process_group {

/// A collective call: carries out a schedule, by messages of pieces. It ends when that is done and
/// all ranks have said that they give what belongs together. However much has come, it advances by
/// a few pieces at a time: other calls wait for the engine's lock.
class Collective final : public Call {
 public:
  /// Takes the group's next number; under the engine's lock, as everything. Pieces of
  /// `segment_bytes`, a multiple of 64 that all ranks share, travel several at a time: the next are
  /// on their way while one is reduced.
  Collective(std::shared_ptr<Ring> ring, const Signature& signature, Schedule schedule,
             uint64_t segment_bytes, double timeout_s);

  Step advance() override;
  std::optional<std::string> late(Time now) override;
  void cancel() noexcept override;
  int64_t number() const noexcept override { return static_cast<int64_t>(number_); }

 private:
  struct Lane {
    uint64_t posted = 0;
    uint64_t ended = 0;
    int in_flight = 0;
    bool closed = false;  // by a piece that is shorter than others
    bool empty = false;   // nothing has come for it, when it was looked at
  };
  struct Piece {
    size_t lane;
    uint64_t begin;
    uint64_t length;
    memory::Room room;  // where it is not sent from, or received into, in place
    bool awaited;       // not come yet
  };

  Step carry_out();
  bool fill();
  bool has_more(size_t lane) const;
  bool may_post(const Transfer& transfer, uint64_t begin) const;
  bool has_come_for(const Round& round) const;
  void post(size_t lane);
  uint64_t wire_bytes(const Piece& piece) const;
  Wire::Address address(int peer) const { return {Wire::Line::kCalls, peer, tag_}; }
  bool look();
  bool test();
  void take(Piece& piece);
  void begin_round();
  std::string words_of_size(int peer, uint64_t bytes, uint64_t expected) const;

  uint64_t number_;
  int tag_;
  Comparison comparison_;
  bool agreed_ = false;
  std::string misfit_;  // of what has come, while ranks may still say why
  Schedule schedule_;
  uint64_t segment_bytes_;
  size_t round_ = 0;
  bool round_begun_ = false;
  std::vector<Lane> lanes_;
  std::vector<Piece> pieces_;  // under way, as requests_
  std::vector<Wire::Request> requests_;
  uint64_t ended_bytes_ = 0;  // of pieces, in this turn of the engine
};

}  // namespace gear::process_group
