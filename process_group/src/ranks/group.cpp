#include "ranks/group.h"

#include "base/errors.h"

namespace gear::process_group {
namespace {

constexpr uint64_t kNumbers = 1 << 15;  // calls of one group that are told apart by their tag
constexpr int kKinds = 16;
constexpr int kFirstTag = 16;

}  // namespace

std::string_view kind_name(Kind kind) {
  constexpr std::string_view kNames[] = {
      "broadcast",      "all_reduce", "reduce",  "all_gather",        "gather", "scatter",
      "reduce_scatter", "all_to_all", "barrier", "monitored_barrier", "send",   "recv"};
  return kNames[static_cast<size_t>(kind)];
}

std::string Group::shown(int rank) const {
  const int in_world = world_ranks_[static_cast<size_t>(rank)];
  return in_world == rank ? std::to_string(rank)
                          : base::cat(rank, " (", in_world, " of the world)");
}

uint64_t Group::take_number(Kind kind) {
  kinds_[next_number_ % kKindsKept] = kind;
  return next_number_++;
}

std::optional<Kind> Group::kind_of(uint64_t number) const {
  if (number >= next_number_ || next_number_ - number > kKindsKept) {
    return std::nullopt;
  }
  return kinds_[number % kKindsKept];
}

int Group::tag_of(uint64_t number, Kind kind) {
  return kFirstTag + static_cast<int>(number % kNumbers) * kKinds + static_cast<int>(kind);
}

int Group::comparison_tag_of(uint64_t number) {
  return tag_of(number, static_cast<Kind>(kKinds - 1));
}

int Group::highest_tag() { return comparison_tag_of(kNumbers - 1); }

void Group::fail(const std::string& words) noexcept {
  if (failure_.empty()) {
    failure_ = words;
    wire_.abandon();
  }
}

}  // namespace gear::process_group
