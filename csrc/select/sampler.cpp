#include "select/sampler.h"

#include <algorithm>

#include "base/errors.h"
#include "select/importance.h"

namespace gear::select {
namespace {

constexpr uint64_t kAtOnce = 1024;  // targets; bounds the memory for them

}  // namespace

Sampler::Sampler(const SamplerOptions& options, store::Index& index)
    : law_(options),
      space_(options, index),
      offered_(counted(options, index)),
      in_order_(options, index),
      order_(options, index),
      targets_(kAtOnce) {
  if (law_.epoch() != nullptr && index.options().max_times_sampled > 0) {
    throw base::InvalidArgument(
        "[sampler] Sequential over a buffer with max_times_sampled: an epoch would change what it "
        "walks over; use Fifo, or a buffer without max_times_sampled");
  }
}

void Sampler::select(store::Index& index, uint64_t count, Selection& out) {
  out.unit = law_.options().unit;
  const bool of_all = law_.needs_least_of_all();
  const float least_of_all = of_all ? space_.least(static_cast<double>(space_.total(index))) : 0.0F;
  if (law_.chance() != nullptr) {
    draw(index, count, out);
  } else {
    order_.list(index, count, listed_);
    for (const Order::Item& item : listed_) {
      out.add(item.anchor, 1.0F);
      index.mark_sampled(item.anchor, out.unit);
    }
  }
  if (law_.is_weighted() && out.size() > 0) {
    const float least = of_all
                            ? least_of_all
                            : *std::min_element(out.probabilities.begin(), out.probabilities.end());
    set_importance(law_.beta(), least, out.probabilities, out.weights);
  }
}

// All at once, or one by one where every draw changes what the next may choose.
void Sampler::draw(store::Index& index, uint64_t count, Selection& out) {
  const bool withdraws = index.options().max_times_sampled > 0;
  while (out.size() < count) {
    const uint64_t wanted = withdraws ? 1 : count - out.size();
    const uint64_t total = space_.total(index);
    if (out.size() == 0 && is_weightless(index)) {
      throw_weightless();
    }
    const uint64_t items = law_.chance()->next(total, space_.version(index), wanted);
    add(index, items, static_cast<double>(total), out);
    if (withdraws && items > 0) {
      index.mark_sampled(out.anchors.back(), out.unit);
    } else {
      index.count_sampled(items);
    }
    if (items < wanted) {
      return;
    }
  }
}

void Sampler::add(const store::Index& index, uint64_t items, double total, Selection& out) {
  const Epoch* epoch = law_.epoch();
  if (items > 0 && epoch != nullptr && !epoch->shuffles()) {
    in_order_.add(index, space_.version(index), epoch->first(), items, one_of(total), out);
    return;
  }
  for (uint64_t done = 0; done < items; done += kAtOnce) {
    const auto targets = std::span(targets_).first(std::min(kAtOnce, items - done));
    law_.chance()->targets(done, targets);
    space_.add(index, targets, total, out);
  }
}

}  // namespace gear::select
