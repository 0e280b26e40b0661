#include "engine/collective.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "engine/arrival.h"
#include "transport/mpi/rooms.h"
#include "transport/mpi/runtime.h"

namespace gear::process_group {
namespace {

using transport::mpi::check;

constexpr int kPiecesAtOnce = 4;  // of a transfer
constexpr std::chrono::milliseconds kCancelFor{250};

// Of this process, for ever: calls may be open at the end.
transport::mpi::Rooms& rooms() {
  static auto* const all = new transport::mpi::Rooms;
  return *all;
}

}  // namespace

Collective::Collective(std::shared_ptr<Ring> ring, const Signature& signature, Schedule schedule,
                       uint64_t segment_bytes, double timeout_s)
    : Call(std::move(ring), signature.kind, timeout_s),
      number_(ring_->communicator.take_number(kind_)),
      tag_(Communicator::tag_of(number_, kind_)),
      comparison_(ring_->communicator, number_, signature),
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
  for (;;) {
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
  const Wire wire = schedule_.arithmetic.wire;
  std::byte* const bytes = transfer.bytes + piece.begin;
  if (wire != Wire::kSame || transfer.reduces) {
    piece.room = rooms().take(piece.length);
    if (!transfer.receives) {
      narrow(wire, bytes, piece.room.get(), piece.length / sizeof(float));
    }
  }
  requests_.push_back(transfer.receives
                          ? MPI_REQUEST_NULL
                          : send(piece.room ? piece.room.get() : bytes, wire_bytes(piece),
                                 transfer.peer, tag_, ring_->communicator.collectives()));
  lanes_[lane].posted += piece.length;
  lanes_[lane].closed = piece.length < segment_bytes_;
  ++lanes_[lane].in_flight;
  pieces_.push_back(std::move(piece));
}

uint64_t Collective::wire_bytes(const Piece& piece) const {
  return schedule_.arithmetic.wire == Wire::kSame ? piece.length : piece.length / 2;
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
    auto come = Arrival::look(transfer.peer, tag_, ring_->communicator.collectives());
    if (!come) {
      lanes_[piece.lane].empty = true;
      continue;
    }
    if (come->bytes() != wire_bytes(piece)) {
      come->drop();
      misfit_ = words_of_size(transfer.peer, come->bytes(), wire_bytes(piece));
      return found;
    }
    requests_[i] = come->receive(piece.room ? piece.room.get() : transfer.bytes + piece.begin);
    piece.awaited = false;
    found = true;
  }
  return found;
}

bool Collective::test() {
  ended_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                ended_.data(), statuses_.data());
  for (int i = 0; code == MPI_ERR_IN_STATUS && i < count; ++i) {
    check(statuses_[static_cast<size_t>(i)].MPI_ERROR, "moving a piece by MPI");
  }
  check(code, "MPI_Testsome");
  count = std::max(count, 0);  // MPI_UNDEFINED: none was open
  for (int i = 0; i < count; ++i) {
    Piece& piece = pieces_[static_cast<size_t>(ended_[static_cast<size_t>(i)])];
    take(piece);
    lanes_[piece.lane].ended += piece.length;
    --lanes_[piece.lane].in_flight;
    if (piece.room) {
      rooms().give(std::move(piece.room), piece.length);
    }
  }
  if (count > 0) {
    size_t kept = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] != MPI_REQUEST_NULL || pieces_[i].awaited) {
        if (kept != i) {
          requests_[kept] = requests_[i];
          pieces_[kept] = std::move(pieces_[i]);
        }
        ++kept;
      }
    }
    requests_.resize(kept);
    pieces_.resize(kept);
  }
  return count > 0;
}

void Collective::take(Piece& piece) {
  const Transfer& transfer = schedule_.rounds[round_].transfers[piece.lane];
  if (!transfer.receives) {
    return;
  }
  const Arithmetic& arithmetic = schedule_.arithmetic;
  const bool narrowed = arithmetic.wire != Wire::kSame;
  std::byte* const to = transfer.bytes + piece.begin;
  if (!narrowed && transfer.reduces) {
    combine(arithmetic.element, arithmetic.reduction, to, to, piece.room.get(),
            piece.length / arithmetic.bytes());
  } else if (narrowed && !transfer.reduces) {
    widen(arithmetic.wire, piece.room.get(), to, piece.length / sizeof(float));
  } else if (narrowed) {
    auto wide = rooms().take(piece.length);
    widen(arithmetic.wire, piece.room.get(), wide.get(), piece.length / sizeof(float));
    combine(arithmetic.element, arithmetic.reduction, to, to, wide.get(),
            piece.length / sizeof(float));
    rooms().give(std::move(wide), piece.length);
  }
  if (schedule_.staging && !transfer.reduces) {
    schedule_.staging->leave(to, piece.length);
  }
}

std::string Collective::words_of_size(int peer, uint64_t bytes, uint64_t expected) const {
  return base::cat("[mpi] rank ", ring_->communicator.shown(peer), " sent ", bytes, " bytes in ",
                   kind_name(kind_), " (call ", number_, " of the group) where rank ",
                   ring_->communicator.shown(ring_->communicator.place().rank), " expects ",
                   expected, " bytes: give tensors of matching sizes and dtypes on all ranks");
}

std::optional<std::string> Collective::late(Clock::time_point now) {
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
  const auto until = Clock::now() + kCancelFor;
  int all_ended = requests_.empty() ? 1 : 0;
  while (all_ended == 0 && Clock::now() < until) {
    if (MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all_ended,
                    MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (all_ended == 0) {
    // MPI may still read or write there, whoever frees what.
    for (Piece& piece : pieces_) {
      static_cast<void>(piece.room.release());
    }
    for (auto& memory : schedule_.memory) {
      static_cast<void>(memory.release());
    }
  }
}

}  // namespace gear::process_group
