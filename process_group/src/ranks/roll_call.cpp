#include "ranks/roll_call.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/errors.h"

namespace gear::process_group {
namespace {

constexpr std::chrono::seconds kAnswersWithin{1};
// What every MPI sends at once: who hears more waits until the teller, who may be gone, is in MPI.
constexpr size_t kMostWords = 1000;

}  // namespace

std::string RollCall::text_of(const std::vector<int>& ranks) const {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + group_.shown(ranks[i]);
  }
  return text;
}

void RollCall::listen() {
  for (;;) {
    int tag = 0;
    std::optional<Wire::Arrival> come;
    for (const int one : {kWordsTag, kAskTag, kAnswerTag}) {
      tag = one;
      come = wire_.look({Wire::Line::kCalls, Wire::kAnyone, tag});
      if (come) {
        break;
      }
    }
    if (!come) {
      return;
    }
    std::string said(come->bytes, '\0');
    wire_.read(*come, reinterpret_cast<std::byte*>(said.data()));
    if (tag == kWordsTag) {
      throw base::TransportError(said);
    }
    if (tag == kAskTag) {
      Question question{};
      std::memcpy(&question, said.data(), std::min(said.size(), sizeof question));
      const Answer own = answer(question.number);
      wire_.tell({Wire::Line::kCalls, come->source, kAnswerTag}, &own, sizeof own);
      continue;
    }
    Answer theirs{};
    std::memcpy(&theirs, said.data(), std::min(said.size(), sizeof theirs));
    if (asked_ == theirs.number) {
      answers_[static_cast<size_t>(come->source)] = theirs;
    }
  }
}

RollCall::Answer RollCall::answer(uint64_t number) const {
  const auto kind = group_.kind_of(number);
  return {number, group_.calls_begun(), kind ? static_cast<uint8_t>(*kind) : kUnknown};
}

std::optional<std::string> RollCall::ask(uint64_t number, Kind kind,
                                         const std::vector<int>& waited_for, double timeout_s,
                                         Time now) {
  const Place place = wire_.place();
  if (!asked_) {
    asked_ = number;
    answers_until_ = now + kAnswersWithin;
    answers_.assign(static_cast<size_t>(place.size), std::nullopt);
    answers_[static_cast<size_t>(place.rank)] =
        Answer{number, group_.calls_begun(), static_cast<uint8_t>(kind)};
    const Question question{number};
    for (int peer = 0; peer < place.size; ++peer) {
      if (peer != place.rank) {
        wire_.tell({Wire::Line::kCalls, peer, kAskTag}, &question, sizeof question);
      }
    }
    return std::nullopt;
  }
  const auto is_here = [&](const auto& one) {
    return one && one->begun > one->number &&
           (one->kind == kUnknown || one->kind == static_cast<uint8_t>(kind));
  };
  // Where all are, what one sends that has just come may come behind its answer.
  const bool decided =
      std::ranges::all_of(answers_, [](const auto& one) { return one.has_value(); }) &&
      !std::ranges::all_of(answers_, is_here);
  if (asked_ != number || (now < answers_until_ && !decided)) {
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
                     group_.shown(wire_.place().rank), " called ", call,
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
  const Place place = wire_.place();
  for (int peer = 0; peer < place.size; ++peer) {
    if (peer != place.rank) {
      wire_.tell({Wire::Line::kCalls, peer, kWordsTag}, words.data(),
                 std::min(words.size(), kMostWords));
    }
  }
}

}  // namespace gear::process_group
