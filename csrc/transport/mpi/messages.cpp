#include "transport/mpi/messages.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "transport/mpi/runtime.h"
#include "transport/mpi/waiting.h"

namespace gear::transport::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kPiecesAtOnce = 4;            // to a rank
constexpr std::chrono::seconds kWordsWithin{1};  // they have been sent at once
constexpr std::chrono::microseconds kShortSleep{50};

// A tag is a call and the number of pieces from this one to the end of its entry.
constexpr uint64_t kCalls = 8;
constexpr uint64_t kMostPieces = 4095;  // that are told apart: every MPI has tags up to 32767
static_assert(static_cast<uint64_t>(Call::kGaveUp) < kCalls);

uint64_t pieces_in(uint64_t bytes, uint64_t piece_bytes) {
  return std::min((bytes + piece_bytes - 1) / piece_bytes, kMostPieces);
}

// Receives words; empty if none were sent, or if they do not come within kWordsWithin: then their
// room stays for ever.
std::string words_in(MPI_Message message, uint64_t bytes) {
  auto room = std::make_unique<std::byte[]>(bytes + 1);
  MPI_Request request = MPI_REQUEST_NULL;
  int ended = 0;
  try {
    {
      const Turn turn;
      check(MPI_Imrecv(room.get(), static_cast<int>(bytes), MPI_BYTE, &message, &request),
            "MPI_Imrecv");
    }
    for (const auto until = Clock::now() + kWordsWithin; ended == 0 && Clock::now() < until;) {
      {
        const Turn turn;
        check(MPI_Test(&request, &ended, MPI_STATUS_IGNORE), "MPI_Test");
      }
      if (ended == 0) {
        std::this_thread::sleep_for(kShortSleep);
      }
    }
  } catch (...) {
    static_cast<void>(room.release());
    throw;
  }
  if (ended == 0) {
    static_cast<void>(room.release());
    return {};
  }
  return {reinterpret_cast<const char*>(room.get()), bytes};
}

}  // namespace

std::string words_of_any(MPI_Comm communicator) {
  int there = 0;
  MPI_Message message;
  MPI_Status status;
  int bytes = 0;
  {
    const Turn turn;
    check(MPI_Improbe(MPI_ANY_SOURCE, kGaveUpTag, communicator, &there, &message, &status),
          "MPI_Improbe");
    if (there == 0) {
      return {};
    }
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  }
  const std::string words = words_in(message, static_cast<uint64_t>(bytes));
  return words.empty() ? base::cat("[transport] rank ", status.MPI_SOURCE,
                                   " has given up: its own output says why")
                       : words;
}

void Messages::begin(Call call) {
  call_ = call;
  unposted_ = 0;
  open_ = 0;
  from_.assign(size_, {});
  to_.assign(size_, {});
}

void Messages::send(uint32_t target, ConstBytes bytes) {
  to_[target].bytes = bytes;
  to_[target].unposted = true;
  ++unposted_;
  ++open_;
}

void Messages::receive(uint32_t source, Bytes bytes) {
  receive(source, std::optional(bytes.size()));
  from_[source].target = bytes.data();
}

void Messages::receive(uint32_t source, std::optional<uint64_t> bytes) {
  from_[source].bytes = bytes;
  from_[source].awaited = true;
  ++open_;
}

void Messages::wait(double timeout_s) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  auto next_look = Clock::now() + base::kInterruptEvery;
  Backoff backoff;
  try {
    for (const Arrival& arrival : std::exchange(early_, {})) {
      take(arrival);
    }
    while (open_ > 0) {
      bool moved = post();
      moved = look() || moved;
      moved = test() || moved;
      if (open_ == 0) {
        return;
      }
      if (!moved && gave_up_) {
        fail_with_words(*gave_up_);
      }
      const auto now = Clock::now();
      if (now >= deadline) {
        fail_late(timeout_s);
      }
      if (now >= next_look) {
        failure_.check();
        base::check_interrupt();
        next_look = now + base::kInterruptEvery;
      }
      if (moved) {
        backoff = Backoff();
      } else {
        backoff.pause();
      }
    }
  } catch (...) {
    abandon();
    throw;
  }
}

bool Messages::post() {
  bool posted = false;
  for (uint32_t i = 1; i < size_ && unposted_ > 0; ++i) {
    const uint32_t target = (rank_ + i) % size_;
    while (to_[target].unposted && to_[target].under_way < kPiecesAtOnce) {
      post(target);
      posted = true;
    }
  }
  return posted;
}

void Messages::post(uint32_t target) {
  Outgoing& entry = to_[target];
  const uint64_t left = entry.bytes.size() - entry.begun;
  const uint64_t bytes = std::min(left, message_bytes_);
  const int tag =
      static_cast<int>(static_cast<uint64_t>(call_) + kCalls * pieces_in(left, message_bytes_));
  Piece piece{target, false, entry.begun, bytes, rooms_.take(bytes)};
  if (bytes > 0) {
    std::memcpy(piece.room.get(), entry.bytes.data() + entry.begun, bytes);
  }
  requests_.push_back(MPI_REQUEST_NULL);
  pieces_.push_back(std::move(piece));
  {
    const Turn turn;
    check(MPI_Isend(pieces_.back().room.get(), static_cast<int>(bytes), MPI_BYTE,
                    static_cast<int>(target), tag, communicator_, &requests_.back()),
          "MPI_Isend");
  }
  entry.begun += bytes;
  ++entry.under_way;
  if (entry.begun == entry.bytes.size()) {
    entry.unposted = false;
    --unposted_;
  }
}

bool Messages::find(int tag, Arrival& arrival) const {
  const Turn turn;
  int there = 0;
  MPI_Status status;
  check(MPI_Improbe(MPI_ANY_SOURCE, tag, communicator_, &there, &arrival.message, &status),
        "MPI_Improbe");
  if (there == 0) {
    return false;
  }
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  arrival.peer = static_cast<uint32_t>(status.MPI_SOURCE);
  arrival.tag = status.MPI_TAG;
  arrival.bytes = static_cast<uint64_t>(bytes);
  return true;
}

void Messages::hear() {
  Arrival arrival{};
  if (!gave_up_ && find(kGaveUpTag, arrival)) {
    gave_up_ = arrival;
  }
  if (gave_up_) {
    fail_with_words(*gave_up_);
  }
}

bool Messages::look() {
  bool found = false;
  for (Arrival arrival{}; find(MPI_ANY_TAG, arrival); found = true) {
    take(arrival);
  }
  return found;
}

void Messages::take(Arrival arrival) {
  if (arrival.tag == kGaveUpTag) {
    if (!gave_up_) {
      gave_up_ = arrival;
    }
    return;
  }
  Incoming& entry = from_[arrival.peer];
  if (!entry.awaited) {
    early_.push_back(arrival);
    return;
  }
  check_expected(arrival, entry);
  entry.awaited = static_cast<uint64_t>(arrival.tag) / kCalls > 1;
  if (entry.target == nullptr) {
    inbox_.add(arrival.peer, arrival.bytes);
  }
  requests_.push_back(MPI_REQUEST_NULL);
  pieces_.push_back({arrival.peer, true, entry.begun, arrival.bytes, rooms_.take(arrival.bytes)});
  entry.begun += arrival.bytes;
  ++entry.under_way;
  const Turn turn;
  check(MPI_Imrecv(pieces_.back().room.get(), static_cast<int>(arrival.bytes), MPI_BYTE,
                   &arrival.message, &requests_.back()),
        "MPI_Imrecv");
}

void Messages::check_expected(const Arrival& arrival, const Incoming& entry) const {
  const auto tag = static_cast<uint64_t>(arrival.tag);
  const auto its_call = static_cast<Call>(tag % kCalls);
  if (its_call != call_) {
    throw base::TransportError(
        other_call_text(arrival.peer, call_name(its_call), rank_, call_name(call_)));
  }
  const uint64_t pieces = tag / kCalls;
  const bool is_last = pieces <= 1;
  if (!entry.bytes) {
    return;
  }
  const uint64_t left = *entry.bytes - entry.begun;
  if (pieces == pieces_in(left, message_bytes_) &&
      arrival.bytes == std::min(left, message_bytes_)) {
    return;
  }
  const uint64_t sent = entry.begun + (is_last ? arrival.bytes : (pieces - 1) * message_bytes_);
  throw base::TransportError(
      other_size_text(arrival.peer, is_last ? std::to_string(sent) : base::cat("more than ", sent),
                      rank_, *entry.bytes, call_name(call_)));
}

bool Messages::test() {
  if (requests_.empty()) {
    return false;
  }
  ended_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  int code = MPI_SUCCESS;
  {
    const Turn turn;
    code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, ended_.data(),
                        statuses_.data());
  }
  for (int i = 0; code == MPI_ERR_IN_STATUS && i < count; ++i) {
    const Piece& piece = pieces_[static_cast<size_t>(ended_[static_cast<size_t>(i)])];
    check(statuses_[static_cast<size_t>(i)].MPI_ERROR,
          piece.receives ? "receiving by MPI" : "sending by MPI");
  }
  check(code, "MPI_Testsome");
  for (int i = 0; i < count; ++i) {
    settle(pieces_[static_cast<size_t>(ended_[static_cast<size_t>(i)])]);
  }
  if (count <= 0) {
    return false;
  }
  size_t kept = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].room) {
      if (kept != i) {
        requests_[kept] = requests_[i];
        pieces_[kept] = std::move(pieces_[i]);
      }
      ++kept;
    }
  }
  requests_.resize(kept);
  pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(kept), pieces_.end());
  return true;
}

// It has ended.
void Messages::settle(Piece& piece) {
  bool open = false;
  if (piece.receives) {
    Incoming& entry = from_[piece.peer];
    if (piece.bytes > 0) {
      std::memcpy(entry.target == nullptr ? inbox_.place(piece.peer, piece.begin)
                                          : entry.target + piece.begin,
                  piece.room.get(), piece.bytes);
    }
    --entry.under_way;
    open = entry.open();
  } else {
    --to_[piece.peer].under_way;
    open = to_[piece.peer].open();
  }
  open_ -= open ? 0 : 1;
  rooms_.give(std::move(piece.room), piece.bytes);
}

void Messages::fail_with_words(Arrival arrival) const {
  const std::string words = words_in(arrival.message, arrival.bytes);
  if (words.empty()) {
    throw base::TransportError(base::cat("[transport] rank ", arrival.peer,
                                         " has given up while rank ", rank_, " is in ",
                                         call_name(call_), ": its own output says why"));
  }
  throw base::TransportError(words);
}

void Messages::fail_late(double timeout_s) const {
  std::vector<uint32_t> silent;
  std::vector<uint32_t> deaf;
  for (uint32_t peer = 0; peer < size_; ++peer) {
    if (from_[peer].open()) {
      silent.push_back(peer);
    }
    if (to_[peer].open()) {
      deaf.push_back(peer);
    }
  }
  throw base::TransportError(
      late_text(silent.empty() ? deaf : silent, call_name(call_), timeout_s));
}

// What has not ended may still be read or written, whoever frees what.
void Messages::abandon() noexcept {
  for (Piece& piece : pieces_) {
    static_cast<void>(piece.room.release());
  }
  pieces_.clear();
  requests_.clear();
}

}  // namespace gear::transport::mpi
