#pragma once

#include <vector>

#include "store/index/index.h"

namespace gear::select {

/// What a sampler returns: the steps a batch is about, one an item, in delivery order.
struct Selection {
  store::Unit unit = store::Unit::kStep;
  std::vector<store::Anchor> anchors;
  std::vector<float>
      probabilities;           ///< with which each was drawn; 1 where there was no chance in it
  std::vector<float> weights;  ///< importance weights in (0, 1]; 1 unless the sampler has any

  size_t size() const { return anchors.size(); }

  /// Room for `count` more, whose values the caller fills in; returns the place of the first.
  size_t extend(size_t count) {
    const size_t first = anchors.size();
    anchors.resize(first + count);
    probabilities.resize(first + count);
    weights.resize(first + count, 1.0F);
    return first;
  }

  /// Exactly `count` items, whose anchors and probabilities the caller fills in.
  void resize(size_t count) {
    anchors.resize(count);
    probabilities.resize(count);
    weights.resize(count, 1.0F);
  }

  void clear() {
    anchors.clear();
    probabilities.clear();
    weights.clear();
  }

  void add(store::Anchor anchor, float probability) {
    anchors.push_back(anchor);
    probabilities.push_back(probability);
    weights.push_back(1.0F);
  }
};

}  // namespace gear::select
