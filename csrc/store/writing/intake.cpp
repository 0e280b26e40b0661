#include "store/writing/intake.h"

#include <utility>

namespace gear::store {

void Intake::append(uint32_t episode, std::span<const float> priorities) {
  changes_.push_back({Kind::kAppend, EpisodeState::kOpen, episode, priorities.size()});
  priorities_.insert(priorities_.end(), priorities.begin(), priorities.end());
}

void Intake::end_episode(uint32_t episode, EpisodeState state, double weight,
                         uint64_t closing_columns) {
  changes_.push_back({Kind::kEnd, state, episode, 0, weight, closing_columns});
}

void Intake::update(std::span<const int64_t> ids, std::span<const float> priorities) {
  changes_.push_back({Kind::kUpdate, EpisodeState::kOpen, kNone, ids.size()});
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  priorities_.insert(priorities_.end(), priorities.begin(), priorities.end());
}

void Intake::deliver(TakenDraws draws) {
  changes_.push_back({Kind::kDeliver});
  draws_.push_back(std::move(draws));
}

void Intake::give_back(TakenDraws draws) {
  changes_.push_back({Kind::kGiveBack});
  draws_.push_back(std::move(draws));
}

void Intake::apply(Index& index) {
  // Empty however it ends, with its memory kept for the next draw.
  struct Clearing {
    Intake& intake;
    ~Clearing() {
      intake.changes_.clear();
      intake.priorities_.clear();
      intake.ids_.clear();
      intake.draws_.clear();
    }
  };
  const Clearing clearing{*this};
  auto priorities = std::span<const float>(priorities_);
  auto ids = std::span<const int64_t>(ids_);
  auto draws = draws_.cbegin();
  for (const Change& change : changes_) {
    const auto given = priorities.first(change.count);
    priorities = priorities.subspan(change.count);
    switch (change.kind) {
      case Kind::kAppend:
        index.append(change.episode, given);
        break;
      case Kind::kEnd:
        index.end_episode(change.episode, change.state, change.weight, change.closing_columns);
        break;
      case Kind::kUpdate:
        index.update(ids.first(change.count), given);
        ids = ids.subspan(change.count);
        break;
      case Kind::kDeliver:
        index.deliver(*draws++);
        break;
      case Kind::kGiveBack:
        index.give_back(*draws++);
        break;
    }
  }
}

}  // namespace gear::store
