#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "store/drawable/priority_sum.h"
#include "store/index/index_state.h"

namespace gear::testing {

/// What an index must say after the same calls in the same order, written to be obviously right:
/// it knows episodes and the numbers of their steps, no slots, lists or trees, and works out
/// everything anew. Pages enter as the times at which each got its first row.
class SlowIndex {
 public:
  static constexpr size_t kMasks = 2;

  struct Step {
    float priority = 0;
    uint32_t times_sampled = 0;  // draws in flight among them
    uint32_t in_flight = 0;
    std::array<bool, kMasks> kept_out{};
  };

  struct Episode {
    uint64_t uid = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
    store::EpisodeState state = store::EpisodeState::kOpen;
    double weight = -1.0;
    uint64_t closing_columns = 0;
    std::map<uint64_t, Step> steps;  // [begin, end)
    std::vector<uint64_t> pages;
    uint32_t times_sampled = 0;  // as a whole
    uint32_t in_flight = 0;

    bool ended() const { return state != store::EpisodeState::kOpen; }
    uint64_t rows() const { return steps.size() + (closing_columns != 0 ? 1 : 0); }
    store::PrioritySum priority_sum(int32_t shift) const {
      store::PrioritySum sum = 0;
      for (const auto& [number, step] : steps) {
        sum += store::in_sum(step.priority, shift);
      }
      return sum;
    }
    double priority(int32_t shift) const {
      if (weight >= 0) {
        return weight;
      }
      return steps.empty() ? 0.0 : store::mean_of(priority_sum(shift), steps.size(), shift);
    }
  };

  /// A step, or (without a number) an episode as a whole, that was drawn.
  struct Draw {
    uint64_t uid = 0;
    std::optional<uint64_t> number;
  };

  explicit SlowIndex(const store::IndexOptions& options) : options_(options) {}

  const std::vector<Episode>& episodes() const { return episodes_; }  // as they were created
  const Episode* find(uint64_t uid) const {
    const auto found = std::ranges::find(episodes_, uid, &Episode::uid);
    return found == episodes_.end() ? nullptr : &*found;
  }
  const store::Counters& counters() const { return counters_; }
  float max_priority() const { return max_priority_; }
  float max_weight() const { return max_weight_; }
  int32_t sum_shift() const { return store::sum_shift(max_priority_); }
  uint64_t num_steps() const {
    uint64_t sum = 0;
    for (const Episode& episode : episodes_) {
      sum += episode.steps.size();
    }
    return sum;
  }
  uint64_t num_free_pages() const {
    uint64_t used = 0;
    for (const Episode& episode : episodes_) {
      used += episode.pages.size();
    }
    return options_.num_pages - used;
  }
  bool has_room(uint64_t uid) const {
    const Episode* episode = find(uid);
    return episode != nullptr && episode->rows() < episode->pages.size() * options_.page_steps;
  }

  // ---- what may be drawn ----
  bool is_spent(const Step& step) const {
    return options_.max_times_sampled > 0 && step.times_sampled >= options_.max_times_sampled;
  }
  bool may_be_drawn(const Episode& episode, uint64_t number, uint64_t lookahead,
                    std::optional<size_t> mask) const {
    const Step& step = episode.steps.at(number);
    return (episode.ended() || number + lookahead < episode.end) && !is_spent(step) &&
           !(mask && step.kept_out[*mask]);
  }
  bool may_be_drawn_whole(const Episode& episode) const {
    const bool spent =
        options_.max_times_sampled > 0 && episode.times_sampled >= options_.max_times_sampled;
    return episode.ended() && !spent && std::ranges::any_of(episode.steps, [&](const auto& item) {
             return !is_spent(item.second);
           });
  }

  // ---- writing ----
  /// Makes room for a page of the episode (0: of a new one); false: no page can go.
  bool make_room(uint64_t uid, bool closing) {
    while (num_free_pages() == 0) {
      Episode* victim = choose_victim(uid, closing);
      if (victim == nullptr) {
        return false;
      }
      const bool own = victim->uid == uid && victim->pages.size() == 1;
      drop_page(*victim);
      if (own) {
        victim->pages.push_back(++num_filled_);
        return true;
      }
      while (!victim->pages.empty() && is_exhausted(*victim)) {
        drop_page(*victim);
      }
      if (victim->pages.empty()) {
        remove(victim->uid);
      }
    }
    return true;
  }
  /// The page of which make_room() spoke; returns the episode.
  uint64_t attach_page(uint64_t uid) {
    if (uid == 0) {
      Episode& opened = episodes_.emplace_back();
      opened.uid = uid = next_uid_++;
    } else if (has_room(uid)) {
      return uid;
    }
    get(uid).pages.push_back(++num_filled_);
    return uid;
  }
  void append(uint64_t uid, float priority) {
    Episode& episode = get(uid);
    const float largest = max_priority_ > 0 ? max_priority_ : 1.0F;
    const float stored = priority < 0 ? largest : std::fabs(priority);
    max_priority_ = std::max(max_priority_, stored);
    episode.steps[episode.end++].priority = stored;
    ++counters_.steps_inserted;
  }
  void end_episode(uint64_t uid, store::EpisodeState state, double weight, uint64_t columns) {
    Episode& episode = get(uid);
    episode.state = state;
    episode.weight = weight;
    max_weight_ = std::max(max_weight_, static_cast<float>(weight));
    episode.closing_columns = columns;
    remove_exhausted(uid);
  }
  /// Whether that is stored; of an episode: whether it begins there.
  bool is_stored(uint64_t uid, uint64_t number, bool whole) const {
    const Episode* episode = find(uid);
    return episode != nullptr && episode->steps.contains(number) &&
           (!whole || number == episode->begin);
  }
  bool update(uint64_t uid, uint64_t number, bool whole, float priority) {
    if (!is_stored(uid, number, whole)) {
      ++counters_.stale_updates;
      return false;
    }
    if (whole) {
      get(uid).weight = static_cast<double>(priority);
      max_weight_ = std::max(max_weight_, priority);
    } else {
      get(uid).steps[number].priority = std::fabs(priority);
      max_priority_ = std::max(max_priority_, priority);
    }
    return true;
  }
  bool mark(size_t mask, uint64_t uid, uint64_t number, bool whole, bool may_be_drawn) {
    if (!is_stored(uid, number, whole)) {
      return false;
    }
    for (auto& [other, step] : get(uid).steps) {
      if (whole || other == number) {
        step.kept_out[mask] = !may_be_drawn;
      }
    }
    return true;
  }
  /// The mask lets all in.
  void renew_mask(size_t mask) {
    for (Episode& episode : episodes_) {
      for (auto& [number, step] : episode.steps) {
        step.kept_out[mask] = false;
      }
    }
  }

  // ---- draws ----
  void sample(const Draw& draw) {
    if (options_.max_times_sampled > 0) {
      change(draw, 1, 1);
    }
  }
  void deliver(const std::vector<Draw>& draws) {
    counters_.steps_sampled += draws.size();
    come_back(draws, 0);
  }
  void give_back(const std::vector<Draw>& draws) { come_back(draws, -1); }

 private:
  Episode& get(uint64_t uid) { return *std::ranges::find(episodes_, uid, &Episode::uid); }
  void remove(uint64_t uid) { episodes_.erase(std::ranges::find(episodes_, uid, &Episode::uid)); }

  // The rule of IndexOptions::evict.
  Episode* choose_victim(uint64_t requester, bool closing) {
    Episode* chosen = nullptr;
    const auto least = [&](const auto& may_go, const auto& key) {
      for (Episode& episode : episodes_) {
        if (may_go(episode) && (chosen == nullptr || key(episode) < key(*chosen))) {
          chosen = &episode;
        }
      }
      return chosen != nullptr;
    };
    const auto ended = [](const Episode& e) { return e.ended(); };
    const auto spares = [](const Episode& e) { return e.ended() || e.pages.size() > 1; };
    const auto spares_or_needs = [&](const Episode& e) {
      return spares(e) || (e.uid == requester && !closing);
    };
    const auto arrival = [](const Episode& e) { return e.pages.front(); };
    switch (options_.evict) {
      case store::Evict::kFifo:
        least(spares_or_needs, arrival);
        return chosen;
      case store::Evict::kLifo:
        least(ended, [](const Episode& e) { return ~e.uid; });
        break;
      case store::Evict::kLowestPriority:
        least(ended, [this](const Episode& e) {
          return e.priority(sum_shift());
        });  // of equal ones the oldest
        break;
    }
    if (chosen == nullptr && find(requester) != nullptr && spares(*find(requester))) {
      return &get(requester);
    }
    chosen != nullptr || least(spares, arrival) || least(spares_or_needs, arrival);
    return chosen;
  }
  void drop_page(Episode& episode) {
    episode.pages.erase(episode.pages.begin());
    const uint64_t begin = std::min(episode.begin + options_.page_steps, episode.end);
    for (; episode.begin < begin; ++episode.begin) {
      episode.steps.erase(episode.begin);
      ++counters_.steps_evicted;
    }
  }
  // An ended episode of which nothing can be drawn, whatever is given back.
  bool is_exhausted(const Episode& episode) const {
    uint64_t in_flight = episode.in_flight;
    for (const auto& [number, step] : episode.steps) {
      in_flight += step.in_flight;
    }
    return episode.ended() && !may_be_drawn_whole(episode) &&
           (episode.steps.empty() || in_flight == 0);
  }
  void remove_exhausted(uint64_t uid) {
    if (const Episode* episode = find(uid); episode != nullptr && is_exhausted(*episode)) {
      counters_.steps_evicted += episode->steps.size();
      remove(uid);
    }
  }
  // Whether what was drawn is stored still.
  bool change(const Draw& draw, int times, int in_flight) {
    if (find(draw.uid) == nullptr ||
        (draw.number && !find(draw.uid)->steps.contains(*draw.number))) {
      return false;
    }
    Episode& episode = get(draw.uid);
    const auto add = [&](auto& drawn) {
      drawn.times_sampled += static_cast<uint32_t>(times);
      drawn.in_flight += static_cast<uint32_t>(in_flight);
    };
    draw.number ? add(episode.steps[*draw.number]) : add(episode);
    return true;
  }
  void come_back(const std::vector<Draw>& draws, int times) {
    if (options_.max_times_sampled == 0) {
      return;
    }
    for (const Draw& draw : draws) {
      if (change(draw, times, -1)) {
        remove_exhausted(draw.uid);
      }
    }
  }

  store::IndexOptions options_;
  std::vector<Episode> episodes_;
  store::Counters counters_;
  float max_priority_ = 0.0F;
  float max_weight_ = 0.0F;
  uint64_t next_uid_ = 1;
  uint64_t num_filled_ = 0;
};

}  // namespace gear::testing
