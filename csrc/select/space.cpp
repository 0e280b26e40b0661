#include "select/space.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/threads/prefetch.h"

namespace gear::select {
namespace {

constexpr size_t kHitsAtOnce = 256;  // what they hit stays in the nearest cache

}  // namespace

Space::Space(const SamplerOptions& options, store::Index& index)
    : steps_(drawable_steps(options, index)) {
  if (options.policy == Policy::kWeighted) {
    const bool with_least = options.normalize == Normalize::kBuffer;
    weights_ = steps_ ? steps_->weights(options.alpha, with_least)
                      : index.head_weights(options.alpha, with_least);
  }
}

float Space::least(double all) const {
  const uint64_t weight = weights_->least->least();
  return weight > 0 ? static_cast<float>(static_cast<double>(weight) * (1.0 / all))
                    : std::numeric_limits<float>::infinity();
}

void Space::add(const store::Index& index, std::span<const uint64_t> targets, double all,
                Selection& out) const {
  const size_t first = out.extend(targets.size());
  resolve(index, targets, all, out.anchors.data() + first, out.probabilities.data() + first);
}

// Calls item(i, hit) for each target, many of which are looked up at once.
template <class Item>
void Space::find(const store::SumTree& tree, std::span<const uint64_t> targets, Item item) const {
  std::array<store::SumTree::Hit, kHitsAtOnce> hits;
  for (size_t done = 0; done < targets.size(); done += hits.size()) {
    const size_t count = std::min(hits.size(), targets.size() - done);
    tree.find(targets.subspan(done, count), {hits.data(), count});
    item(done, std::span<const store::SumTree::Hit>(hits).first(count));
  }
}

void Space::resolve(const store::Index& index, std::span<const uint64_t> targets, double all,
                    store::Anchor* anchors, float* probabilities) const {
  const store::SumTree& items = tree(index);
  if (weights_) {
    const double scale = 1.0 / all;
    find(items, targets, [&](size_t first, std::span<const store::SumTree::Hit> hits) {
      for (size_t i = 0; i < hits.size(); ++i) {
        const auto leaf = static_cast<uint32_t>(hits[i].leaf);
        const store::Anchor anchor = steps_ ? index.anchor_of(leaf) : store::Anchor{leaf, 0};
        base::prefetch(&index.page(anchor.page));
        anchors[first + i] = anchor;
        probabilities[first + i] = static_cast<float>(static_cast<double>(items[leaf]) * scale);
      }
    });
    return;
  }
  const float probability = one_of(all);
  find(items, targets, [&](size_t first, std::span<const store::SumTree::Hit> hits) {
    for (const store::SumTree::Hit& hit : hits) {
      base::prefetch(&index.page(static_cast<uint32_t>(hit.leaf)));
    }
    for (size_t i = 0; i < hits.size(); ++i) {
      const auto page = static_cast<uint32_t>(hits[i].leaf);
      anchors[first + i] = {page, steps_ ? steps_->nth(page, hits[i].remainder) : 0};
      probabilities[first + i] = probability;
    }
  });
}

float Space::probability(const store::Index& index, store::Anchor anchor, double all) const {
  if (weights_) {
    const uint64_t leaf = steps_ ? index.slot(anchor) : anchor.page;
    return static_cast<float>(static_cast<double>(weights_->sums[leaf]) * (1.0 / all));
  }
  const bool in_it = steps_ ? steps_->contains(anchor) : tree(index)[anchor.page] != 0;
  return in_it ? one_of(all) : 0.0F;
}

}  // namespace gear::select
