#include "ranks/roll_call.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/errors.h"
#include "transport/mpi/runtime.h"

namespace gear::process_group {
namespace {

using transport::mpi::check;

constexpr std::chrono::seconds kAnswersWithin{1};
// What every MPI sends at once: who hears more waits until the teller, who may be gone, is in MPI.
constexpr size_t kMostWords = 1000;

}  // namespace

std::string RollCall::text_of(const std::vector<int>& ranks) const {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + communicator_.shown(ranks[i]);
  }
  return text;
}

void RollCall::listen() {
  for (;;) {
    int there = 0;
    MPI_Status status;
    for (const int tag : {kWordsTag, kAskTag, kAnswerTag}) {
      check(MPI_Iprobe(MPI_ANY_SOURCE, tag, communicator_.collectives(), &there, &status),
            "MPI_Iprobe");
      if (there != 0) {
        break;
      }
    }
    if (there == 0) {
      return;
    }
    int bytes = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    std::string said(static_cast<size_t>(bytes), '\0');
    check(MPI_Recv(said.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG,
                   communicator_.collectives(), MPI_STATUS_IGNORE),
          "MPI_Recv");
    if (status.MPI_TAG == kWordsTag) {
      throw base::TransportError(said);
    }
    if (status.MPI_TAG == kAskTag) {
      Question question{};
      std::memcpy(&question, said.data(), std::min(said.size(), sizeof question));
      const Answer own = answer(question.number);
      send_away(&own, sizeof own, status.MPI_SOURCE, kAnswerTag);
      continue;
    }
    Answer theirs{};
    std::memcpy(&theirs, said.data(), std::min(said.size(), sizeof theirs));
    if (asked_ == theirs.number) {
      answers_[static_cast<size_t>(status.MPI_SOURCE)] = theirs;
    }
  }
}

RollCall::Answer RollCall::answer(uint64_t number) const {
  const auto kind = communicator_.kind_of(number);
  return {number, communicator_.calls_begun(), kind ? static_cast<uint8_t>(*kind) : kUnknown};
}

std::optional<std::string> RollCall::ask(uint64_t number, Kind kind,
                                         const std::vector<int>& waited_for, double timeout_s,
                                         Clock::time_point now) {
  const Place place = communicator_.place();
  if (!asked_) {
    asked_ = number;
    answers_until_ = now + kAnswersWithin;
    answers_.assign(static_cast<size_t>(place.size), std::nullopt);
    answers_[static_cast<size_t>(place.rank)] =
        Answer{number, communicator_.calls_begun(), static_cast<uint8_t>(kind)};
    const Question question{number};
    for (int peer = 0; peer < place.size; ++peer) {
      if (peer != place.rank) {
        send_away(&question, sizeof question, peer, kAskTag);
      }
    }
    return std::nullopt;
  }
  if (asked_ != number ||
      (now < answers_until_ &&
       !std::ranges::all_of(answers_, [](const auto& one) { return one.has_value(); }))) {
    return std::nullopt;
  }
  return verdict(kind, waited_for, timeout_s);
}

std::string RollCall::verdict(Kind kind, const std::vector<int>& waited_for,
                              double timeout_s) const {
  std::vector<int> absent;
  std::vector<int> elsewhere;
  std::vector<int> far_ahead;
  std::string_view other_kind;
  for (size_t rank = 0; rank < answers_.size(); ++rank) {
    const auto& answer = answers_[rank];
    if (!answer || answer->begun <= answer->number) {
      absent.push_back(static_cast<int>(rank));
    } else if (answer->kind == kUnknown) {
      far_ahead.push_back(static_cast<int>(rank));
    } else if (answer->kind != static_cast<uint8_t>(kind)) {
      elsewhere.push_back(static_cast<int>(rank));
      other_kind = kind_name(static_cast<Kind>(answer->kind));
    }
  }
  const auto call = base::cat(kind_name(kind), " (call ", *asked_, " of the group)");
  if (!elsewhere.empty()) {
    return base::cat("[mpi] ", text_of(elsewhere), " called ", other_kind, " where rank ",
                     communicator_.shown(communicator_.place().rank), " called ", call,
                     ": all ranks of a group make the same calls in the same order");
  }
  if (!absent.empty()) {
    return base::cat("[mpi] ", text_of(absent), " did not come to ", call, " within ", timeout_s,
                     " s: look at the output of ", absent.size() == 1 ? "that rank" : "these ranks",
                     ", or give init_process_group a longer timeout");
  }
  const std::string ahead =
      far_ahead.empty() ? "" : base::cat(" (", text_of(far_ahead), " long ago)");
  return base::cat(
      "[mpi] all ranks have come to ", call, ahead, ", and what ", text_of(waited_for),
      " sends has not come within ", timeout_s,
      " s: look whether all ranks give tensors of the same size, and at the network, or "
      "give init_process_group a longer timeout");
}

void RollCall::over(uint64_t number) noexcept {
  if (asked_ == number) {
    asked_.reset();
  }
}

void RollCall::tell(const std::string& words) noexcept {
  const Place place = communicator_.place();
  for (int peer = 0; peer < place.size; ++peer) {
    if (peer != place.rank) {
      send_away(words.data(), std::min(words.size(), kMostWords), peer, kWordsTag);
    }
  }
}

void RollCall::send_away(const void* bytes, size_t size, int peer, int tag) noexcept {
  auto* const kept = new (std::nothrow) std::byte[size];
  if (kept == nullptr) {
    return;
  }
  std::memcpy(kept, bytes, size);
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Isend(kept, static_cast<int>(size), MPI_BYTE, peer, tag, communicator_.collectives(),
                &request) == MPI_SUCCESS) {
    MPI_Request_free(&request);
  }
}

}  // namespace gear::process_group
