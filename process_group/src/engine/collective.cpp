#include "engine/collective.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "memory/rooms.h"

namespace gear::process_group {
namespace {

constexpr int kPiecesAtOnce = 4;            // of a transfer
constexpr uint64_t kBytesAtOnce = 1 << 20;  // after which other calls have their turn

// Of this process, for ever: calls may be open at the end.
memory::Rooms& rooms() {
  static auto* const all = new memory::Rooms;
  return *all;
}

}  // namespace

Collective::Collective(std::shared_ptr<Ring> ring, const Signature& signature, Schedule schedule,
                       uint64_t segment_bytes, double timeout_s)
    : Call(std::move(ring), signature.kind, timeout_s),
      number_(ring_->group.take_number(kind_)),
      tag_(Group::tag_of(number_, kind_)),
      comparison_(*ring_, number_, signature),
      schedule_(std::move(schedule)),
      segment_bytes_(segment_bytes) {}

// What carries the call goes first: the comparison waits for the same ranks.
Step Collective::advance() {
  const Step step = misfit_.empty() ? carry_out() : Step::kIdle;
  agreed_ = agreed_ || comparison_.advance();
  if (agreed_ && !misfit_.empty()) {
    throw base::TransportError(misfit_);
  }
  if (step != Step::kEnded) {
    return step;
  }
  if (!agreed_) {
    return Step::kIdle;
  }
  ring_->roll_call.over(number_);
  return Step::kEnded;
}

Step Collective::carry_out() {
  bool moved = false;
  ended_bytes_ = 0;
  for (;;) {
    if (ended_bytes_ >= kBytesAtOnce) {
      return Step::kMoved;
    }
    if (round_ == schedule_.rounds.size()) {
      if (schedule_.more) {
        if (!agreed_) {  // what has come may be of another operation
          return moved ? Step::kMoved : Step::kIdle;
        }
        (*std::exchange(schedule_.more, nullptr))(schedule_);
        continue;
      }
      // Until then the GPU may write to the memory that stands for its own.
      if (schedule_.staging && !schedule_.staging->have_all_come()) {
        return moved ? Step::kMoved : Step::kIdle;
      }
      return Step::kEnded;
    }
    if (!round_begun_) {
      begin_round();
    }
    moved = fill() || moved;
    if (!requests_.empty()) {
      const bool come = look();
      if (!misfit_.empty() || (!test() && !come)) {
        return moved ? Step::kMoved : Step::kIdle;
      }
      moved = true;
      continue;
    }
    const Round& round = schedule_.rounds[round_];
    if (schedule_.staging && !has_come_for(round)) {
      return moved ? Step::kMoved : Step::kIdle;
    }
    if (round.then) {
      round.then();
    }
    if (schedule_.staging) {
      schedule_.staging->leave(round.complete.bytes, round.complete.length);
    }
    ++round_;
    round_begun_ = false;
    moved = true;
  }
}

void Collective::begin_round() {
  lanes_.assign(schedule_.rounds[round_].transfers.size(), {});
  round_begun_ = true;
}

bool Collective::fill() {
  const auto& transfers = schedule_.rounds[round_].transfers;
  bool posted = false;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    while (has_more(i) && lanes_[i].in_flight < kPiecesAtOnce &&
           may_post(transfers[i], lanes_[i].posted)) {
      post(i);
      posted = posted || !transfers[i].receives;
    }
  }
  return posted;
}

bool Collective::has_more(size_t lane) const {
  const Transfer& transfer = schedule_.rounds[round_].transfers[lane];
  return lanes_[lane].posted < transfer.length || (transfer.tells_length && !lanes_[lane].closed);
}

// What is sent, or reduced into, must have come from the GPU first.
bool Collective::may_post(const Transfer& transfer, uint64_t begin) const {
  return !schedule_.staging || (transfer.receives && !transfer.reduces) ||
         schedule_.staging->has_come(transfer.bytes + begin,
                                     std::min(segment_bytes_, transfer.length - begin));
}

// Whether the round has sent everything, and `then` may be called.
bool Collective::has_come_for(const Round& round) const {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (has_more(i)) {
      return false;
    }
  }
  if (!round.then) {
    return true;
  }
  return round.reads ? schedule_.staging->has_come(round.reads->bytes, round.reads->length)
                     : schedule_.staging->have_all_come();
}

void Collective::post(size_t lane) {
  const Transfer& transfer = schedule_.rounds[round_].transfers[lane];
  Piece piece{lane, lanes_[lane].posted, 0, nullptr, transfer.receives};
  piece.length = std::min(segment_bytes_, transfer.length - piece.begin);
  const Compression compression = schedule_.arithmetic.compression;
  std::byte* const bytes = transfer.bytes + piece.begin;
  if (compression != Compression::kNone || transfer.reduces) {
    piece.room = rooms().take(piece.length);
    if (!transfer.receives) {
      narrow(compression, bytes, piece.room.get(), piece.length / sizeof(float));
    }
  }
  // What is under way stands in both, whatever throws.
  requests_.push_back(Wire::Request::kNone);
  pieces_.push_back(std::move(piece));
  const Piece& kept = pieces_.back();
  if (!transfer.receives) {
    requests_.back() = ring_->wire->send(address(transfer.peer),
                                         kept.room ? kept.room.get() : bytes, wire_bytes(kept));
  }
  lanes_[lane].posted += kept.length;
  lanes_[lane].closed = kept.length < segment_bytes_;
  ++lanes_[lane].in_flight;
}

uint64_t Collective::wire_bytes(const Piece& piece) const {
  return schedule_.arithmetic.compression == Compression::kNone ? piece.length : piece.length / 2;
}

// Begins to receive what has come. Pieces of a lane come in their order.
bool Collective::look() {
  const auto& transfers = schedule_.rounds[round_].transfers;
  for (Lane& lane : lanes_) {
    lane.empty = false;
  }
  bool found = false;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    Piece& piece = pieces_[i];
    const Transfer& transfer = transfers[piece.lane];
    if (!piece.awaited || lanes_[piece.lane].empty) {
      continue;
    }
    const auto come = ring_->wire->look(address(transfer.peer));
    if (!come) {
      lanes_[piece.lane].empty = true;
      continue;
    }
    if (come->bytes != wire_bytes(piece)) {
      ring_->wire->drop(*come);
      misfit_ = words_of_size(transfer.peer, come->bytes, wire_bytes(piece));
      return found;
    }
    requests_[i] =
        ring_->wire->take(*come, piece.room ? piece.room.get() : transfer.bytes + piece.begin);
    piece.awaited = false;
    found = true;
  }
  return found;
}

bool Collective::test() {
  if (!ring_->wire->test(requests_)) {
    return false;
  }
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    Piece& piece = pieces_[i];
    if (requests_[i] == Wire::Request::kNone && !piece.awaited) {
      take(piece);
      ended_bytes_ += piece.length;
      lanes_[piece.lane].ended += piece.length;
      --lanes_[piece.lane].in_flight;
      continue;
    }
    // Where taking one throws, each is there still, once.
    std::swap(requests_[kept], requests_[i]);
    std::swap(pieces_[kept], piece);
    ++kept;
  }
  requests_.resize(kept);
  pieces_.resize(kept);
  return true;
}

void Collective::take(Piece& piece) {
  const Transfer& transfer = schedule_.rounds[round_].transfers[piece.lane];
  if (!transfer.receives) {
    return;
  }
  const Arithmetic& arithmetic = schedule_.arithmetic;
  const bool narrowed = arithmetic.compression != Compression::kNone;
  std::byte* const to = transfer.bytes + piece.begin;
  if (!narrowed && transfer.reduces) {
    combine(arithmetic.element, arithmetic.reduction, to, to, piece.room.get(),
            piece.length / arithmetic.bytes());
  } else if (narrowed && !transfer.reduces) {
    widen(arithmetic.compression, piece.room.get(), to, piece.length / sizeof(float));
  } else if (narrowed) {
    const memory::Room wide = rooms().take(piece.length);
    widen(arithmetic.compression, piece.room.get(), wide.get(), piece.length / sizeof(float));
    combine(arithmetic.element, arithmetic.reduction, to, to, wide.get(),
            piece.length / sizeof(float));
  }
  if (schedule_.staging && !transfer.reduces) {
    schedule_.staging->leave(to, piece.length);
  }
}

std::string Collective::words_of_size(int peer, uint64_t bytes, uint64_t expected) const {
  return base::cat("[mpi] rank ", ring_->group.shown(peer), " sent ", bytes, " bytes in ",
                   kind_name(kind_), " (call ", number_, " of the group) where rank ",
                   ring_->group.shown(ring_->place.rank), " expects ", expected,
                   " bytes: give tensors of matching sizes and dtypes on all ranks");
}

std::optional<std::string> Collective::late(Time now) {
  if (!misfit_.empty()) {
    return misfit_;
  }
  if (schedule_.staging && !schedule_.staging->have_all_come()) {
    return late_gpu();
  }
  std::vector<int> waited_for;
  waited_for.reserve(pieces_.size());
  for (const Piece& piece : pieces_) {
    waited_for.push_back(schedule_.rounds[round_].transfers[piece.lane].peer);
  }
  if (!agreed_ && comparison_.waited_for() >= 0) {
    waited_for.push_back(comparison_.waited_for());
  }
  std::ranges::sort(waited_for);
  waited_for.erase(std::ranges::unique(waited_for).begin(), waited_for.end());
  return ring_->roll_call.ask(number_, kind_, waited_for, timeout_s_, now);
}

void Collective::cancel() noexcept {
  comparison_.cancel();
  if (ring_->settle(requests_)) {
    return;
  }
  for (Piece& piece : pieces_) {
    static_cast<void>(piece.room.release());
  }
  for (auto& memory : schedule_.memory) {
    static_cast<void>(memory.release());
  }
}

}  // namespace gear::process_group
