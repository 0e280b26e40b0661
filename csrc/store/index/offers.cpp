#include "store/index/offers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "store/index/fixed_point.h"

namespace gear::store {
namespace {

constexpr float kNotCounted = -1.0F;  // no priority is negative

}  // namespace

double episode_priority(const Episode& episode) {
  if (episode.weight >= 0) {
    return episode.weight;
  }
  if (episode.end == episode.begin) {
    return 0;
  }
  return static_cast<double>(episode.priority_sum) /
         static_cast<double>((episode.end - episode.begin) << kWeightFractionBits);
}

// ---- WeightTrees ----

uint64_t WeightTrees::bytes() const {
  uint64_t total = 0;
  for (const auto& tree : trees_) {
    total += tree->sums.bytes();
  }
  return total;
}

std::shared_ptr<WeightTrees::Tree> WeightTrees::find(double alpha) const {
  const auto found = std::ranges::find_if(trees_, [&](const auto& t) { return t->alpha == alpha; });
  return found == trees_.end() ? nullptr : *found;
}

std::shared_ptr<WeightTrees::Tree> WeightTrees::make(double alpha, uint64_t num_leaves) {
  trees_.push_back(std::make_shared<Tree>(Tree{alpha, SumTree(num_leaves)}));
  return trees_.back();
}

void WeightTrees::drop_unused() {
  std::erase_if(trees_, [](const auto& tree) { return tree.use_count() == 1; });
}

// ---- Offer ----

Offer::Offer(const IndexOptions& options, IndexState& state, const UnspentSteps& unspent,
             uint64_t lookahead)
    : options_(options),
      state_(state),
      unspent_(unspent),
      lookahead_(lookahead),
      counts_(options.num_pages),
      reached_(state.episodes.size()) {
  for (uint32_t e = state.oldest; e != kNone; e = state.episodes[e].newer) {
    opened(e);
    publish(e);
  }
}

uint64_t Offer::bytes() const {
  return counts_.bytes() + weights_.bytes() + reached_.size() * sizeof(Reached);
}

uint32_t Offer::rows(uint32_t p) const {
  const Page& page = state_.pages[p];
  if (page.episode == kNone) {
    return 0;
  }
  const uint64_t end = reached_[page.episode].end;
  return end <= page.first_step
             ? 0
             : static_cast<uint32_t>(std::min(end - page.first_step, options_.page_steps));
}

bool Offer::drawable(Anchor anchor) const {
  const Page& page = state_.pages[anchor.page];
  return page.episode != kNone && anchor.row < page.anchors &&
         (state_.episodes[page.episode].ended() || anchor.row < rows(anchor.page)) &&
         !unspent_.spent(slot(anchor.page, anchor.row));
}

Page Offer::seen(uint32_t p) const {
  Page page = state_.pages[p];
  page.anchors = static_cast<uint16_t>(rows(p));
  page.spent = static_cast<uint16_t>(page.anchors - counts_[p]);
  return page;
}

void Offer::opened(uint32_t e) {
  if (e >= reached_.size()) {
    reached_.resize(e + 1);
  }
  reached_[e] = {state_.episodes[e].begin, kNone};
}

void Offer::publish(uint32_t e) {
  const Episode& episode = state_.episodes[e];
  Reached& reached = reached_[e];
  uint64_t target = episode.end;
  if (!episode.ended()) {
    target -= std::min(target, lookahead_);
  }
  while (reached.end < target) {
    if (reached.page == kNone) {
      reached.page = episode.head;
    } else if (reached.end == state_.pages[reached.page].first_step + options_.page_steps) {
      reached.page = state_.pages[reached.page].next;
    }
    const uint64_t first = state_.pages[reached.page].first_step;
    const uint64_t stop = std::min(target, first + options_.page_steps);
    page_changes(reached.page);
    show(reached.page, static_cast<uint32_t>(reached.end - first),
         static_cast<uint32_t>(stop - first));
    reached.end = stop;
  }
}

void Offer::show(uint32_t p, uint32_t from, uint32_t to) {
  ++version_;
  weights_.drop_unused();
  counts_.set(p, counts_[p] + (to - from) - unspent_.count_spent(p, from, to));
  for (const auto& tree : weights_) {
    set_weights(*tree, p, from, to);
  }
}

void Offer::hide_head(uint32_t e) {
  const uint32_t p = state_.episodes[e].head;
  const uint32_t shown = rows(p);
  Reached& reached = reached_[e];
  page_changes(p);
  ++version_;
  counts_.set(p, 0);
  fixed_.assign(shown, 0);
  for (const auto& tree : weights_) {
    tree->sums.set_run(slot(p, 0), fixed_);
  }
  reached.end = std::max(reached.end, state_.episodes[e].begin + state_.pages[p].anchors);
  if (reached.page == p) {
    reached.page = kNone;
  }
}

void Offer::spend(Anchor anchor) {
  if (anchor.row >= rows(anchor.page)) {
    return;
  }
  ++version_;
  counts_.set(anchor.page, counts_[anchor.page] - 1);
  for (const auto& tree : weights_) {
    tree->sums.set(slot(anchor.page, anchor.row), 0);
  }
}

void Offer::unspend(Anchor anchor) {
  if (anchor.row >= rows(anchor.page)) {
    return;
  }
  ++version_;
  counts_.set(anchor.page, counts_[anchor.page] + 1);
  for (const auto& tree : weights_) {
    set_weights(*tree, anchor.page, anchor.row, anchor.row + 1);
  }
}

std::shared_ptr<const SumTree> Offer::weights(double alpha) {
  std::shared_ptr<WeightTrees::Tree> tree = weights_.find(alpha);
  if (!tree) {
    tree = weights_.make(alpha, options_.num_slots());
    for (uint32_t p = 0; p < options_.num_pages; ++p) {
      set_weights(*tree, p, 0, rows(p));
    }
  }
  return {tree, &tree->sums};
}

void Offer::set_weights(WeightTrees::Tree& tree, uint32_t p, uint32_t from, uint32_t to) {
  const uint64_t first = slot(p, from);
  const uint32_t count = to - from;
  const bool some_spent = state_.pages[p].spent > 0;
  priorities_.resize(count);
  fixed_.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    // A spent step has no weight, and none that could be cut.
    const bool none = some_spent && unspent_.spent(first + i);
    priorities_[i] = none ? 0.0F : state_.priorities[first + i];
  }
  state_.counters.saturated_weights +=
      fixed_weights(priorities_, tree.alpha, weight_limit(tree.sums.num_leaves()), fixed_);
  for (uint32_t i = 0; i < count && some_spent; ++i) {
    if (unspent_.spent(first + i)) {
      fixed_[i] = 0;
    }
  }
  tree.sums.set_run(first, fixed_);
}

void Offer::reweigh(uint32_t p) {
  for (const auto& tree : weights_) {
    set_weights(*tree, p, 0, rows(p));
  }
}

void Offer::update(std::span<const Anchor> anchors, std::span<const float> priorities) {
  if (weights_.begin() == weights_.end()) {
    return;
  }
  slots_.clear();
  priorities_.clear();
  for (size_t i = 0; i < anchors.size(); ++i) {
    if (drawable(anchors[i])) {
      slots_.push_back(slot(anchors[i].page, anchors[i].row));
      priorities_.push_back(priorities[i]);
    }
  }
  fixed_.resize(slots_.size());
  for (const auto& tree : weights_) {
    state_.counters.saturated_weights +=
        fixed_weights(priorities_, tree->alpha, weight_limit(tree->sums.num_leaves()), fixed_);
    tree->sums.set_each(slots_, fixed_);
  }
}

// ---- Offers ----

Offers::Offers(const IndexOptions& options, IndexState& state)
    : options_(options), state_(state), unspent_(options, state), heads_(options.num_pages) {
  steps_.push_back(std::make_shared<Offer>(options_, state_, unspent_, 0));
  for (uint32_t e = state_.oldest; e != kNone; e = state_.episodes[e].newer) {
    refresh(e);
  }
}

uint64_t Offers::bytes() const {
  uint64_t total = unspent_.bytes() + heads_.bytes() + head_weights_.bytes();
  for (const auto& offer : steps_) {
    total += offer->bytes();
  }
  return total;
}

const std::shared_ptr<Offer>& Offers::steps(uint64_t lookahead) {
  for (const auto& offer : steps_) {
    if (offer->lookahead() == lookahead) {
      return offer;
    }
  }
  drop_unused();
  steps_.push_back(std::make_shared<Offer>(options_, state_, unspent_, lookahead));
  return steps_.back();
}

void Offers::drop_unused() {
  head_weights_.drop_unused();
  const auto unused = std::remove_if(steps_.begin() + 1, steps_.end(),
                                     [](const auto& offer) { return offer.use_count() == 1; });
  steps_.erase(unused, steps_.end());
}

std::shared_ptr<const SumTree> Offers::head_weights(double alpha) {
  std::shared_ptr<WeightTrees::Tree> tree = head_weights_.find(alpha);
  if (!tree) {
    tree = head_weights_.make(alpha, options_.num_pages);
    for (uint32_t e = state_.oldest; e != kNone; e = state_.episodes[e].newer) {
      if (drawable(e)) {
        state_.counters.saturated_weights += weigh(*tree, e) ? 1 : 0;
      }
    }
  }
  return {tree, &tree->sums};
}

bool Offers::weighs_episodes() {
  head_weights_.drop_unused();
  return !head_weights_.empty();
}

bool Offers::weigh(WeightTrees::Tree& tree, uint32_t e) {
  const Episode& episode = state_.episodes[e];
  const auto priority = static_cast<float>(episode_priority(episode));
  uint64_t weight = 0;
  const uint64_t cut =
      fixed_weights({&priority, 1}, tree.alpha, weight_limit(tree.sums.num_leaves()), {&weight, 1});
  tree.sums.set(episode.head, weight);
  return cut > 0;
}

bool Offers::drawable(uint32_t e) const {
  const Episode& episode = state_.episodes[e];
  return episode.ended() && episode.head != kNone && unspent_.any(e) &&
         (options_.max_times_sampled == 0 || episode.times_sampled < options_.max_times_sampled);
}

bool Offers::exhausted(uint32_t e) const {
  const Episode& episode = state_.episodes[e];
  return episode.ended() && !drawable(e) &&
         (episode.begin == episode.end || unspent_.in_flight(e) == 0);
}

void Offers::page_changes(uint32_t page) {
  for (const auto& offer : steps_) {
    offer->page_changes(page);
  }
}

void Offers::episode_changes(uint32_t episode) {
  tell([episode](ChangeLog& log) { log.episode(episode); });
}

void Offers::episode_weight_changes(uint32_t episode) {
  tell([episode](ChangeLog& log) { log.episode_weight(episode); });
}

void Offers::opened(uint32_t e) {
  if (steps_.size() > 1) {
    drop_unused();
  }
  if (e < counted_.size()) {
    counted_[e] = kNotCounted;
  }
  unspent_.opened(e);
  for (const auto& offer : steps_) {
    offer->opened(e);
  }
  episode_weight_changes(e);
}

void Offers::appends(uint32_t page, uint64_t row, std::span<const float> priorities) {
  page_changes(page);
  tell([&](ChangeLog& log) { log.appended(page, row, priorities); });
}

void Offers::appended(uint32_t e, uint32_t from) {
  unspent_.appended(state_.episodes[e].tail, from);
  for (const auto& offer : steps_) {
    offer->publish(e);
  }
}

void Offers::ended(uint32_t e) {
  for (const auto& offer : steps_) {
    offer->publish(e);
  }
  refresh(e);
}

void Offers::drops_head(uint32_t e) {
  const uint32_t p = state_.episodes[e].head;
  const uint32_t next = state_.pages[p].next;
  withdraw(e);
  episode_changes(e);
  for (const auto& offer : steps_) {
    offer->hide_head(e);
    if (next != kNone) {
      offer->page_changes(next);
    }
    for (ChangeLog* log : offer->logs_) {
      log->dropped(p);
    }
  }
  unspent_.drop(p);
}

void Offers::sampled(Anchor anchor, Unit unit) {
  const uint32_t e = state_.pages[anchor.page].episode;
  if (unit == Unit::kEpisode) {
    unspent_.episode_sampled(e);
  } else if (unspent_.sampled(anchor)) {
    for (const auto& offer : steps_) {
      offer->spend(anchor);
    }
  }
  if (!drawable(e)) {
    withdraw(e);
  }
}

void Offers::delivered(Anchor anchor, Unit unit) {
  if (unit == Unit::kEpisode) {
    unspent_.episode_delivered(state_.pages[anchor.page].episode);
  } else {
    unspent_.delivered(anchor);
  }
}

void Offers::given_back(Anchor anchor, Unit unit) {
  const uint32_t e = state_.pages[anchor.page].episode;
  const uint64_t saturated = state_.counters.saturated_weights;  // counted when they were drawn
  if (unit == Unit::kEpisode) {
    unspent_.episode_given_back(e);
  } else if (unspent_.given_back(anchor)) {
    for (const auto& offer : steps_) {
      offer->unspend(anchor);
    }
  }
  refresh(e);
  state_.counters.saturated_weights = saturated;
}

void Offers::updated(std::span<const Anchor> steps, std::span<const float> priorities) {
  for (const auto& offer : steps_) {
    offer->update(steps, priorities);
  }
}

void Offers::withdraw(uint32_t e) {
  const uint32_t head = state_.episodes[e].head;
  if (head == kNone || heads_[head] == 0) {
    return;
  }
  page_changes(head);
  ++heads_version_;
  heads_.set(head, 0);
  for (const auto& tree : head_weights_) {
    tree->sums.set(head, 0);
  }
}

void Offers::refresh(uint32_t e) {
  if (!drawable(e)) {
    return;
  }
  const Episode& episode = state_.episodes[e];
  if (heads_[episode.head] == 0) {
    page_changes(episode.head);
    ++heads_version_;
    heads_.set(episode.head, 1);
  }
  if (e >= counted_.size()) {
    counted_.resize(state_.episodes.size(), kNotCounted);
  }
  const auto priority = static_cast<float>(episode_priority(episode));
  const bool counts = std::exchange(counted_[e], priority) != priority;
  for (const auto& tree : head_weights_) {
    const bool cut = weigh(*tree, e);
    state_.counters.saturated_weights += cut && counts ? 1 : 0;
  }
}

void Offers::reweigh() {
  drop_unused();
  for (uint32_t p = 0; p < options_.num_pages; ++p) {
    for (const auto& offer : steps_) {
      offer->reweigh(p);
    }
  }
}

}  // namespace gear::store
