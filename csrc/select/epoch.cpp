#include "select/epoch.h"

#include <algorithm>

#include "base/errors.h"
#include "base/numbers/philox.h"

namespace gear::select {
namespace {

constexpr uint64_t kShuffleStream = 1;  // apart from the stream of the draws

}  // namespace

uint64_t Epoch::next(uint64_t size, uint64_t version, uint64_t count, bool drop_last) {
  if (at_.size == 0) {
    at_.size = size;
    version_ = version;
  }
  if (!version_) {
    version_ = version;  // restored: the content is as it was saved
  }
  if (*version_ != version || size != at_.size) {
    const uint64_t began_with = at_.size;
    begin_next();
    throw base::InvalidArgument(
        base::cat("[select] the buffer changed in the middle of a sequential epoch (", began_with,
                  " items when it began, ", size,
                  " offered): the next epoch begins; append between epochs only"));
  }
  const uint64_t left = at_.size - at_.draws;
  if (left == 0 || (drop_last && left < count)) {
    begin_next();
    return 0;
  }
  first_ = at_.draws;
  const uint64_t items = std::min(count, left);
  at_.draws += items;
  return items;
}

void Epoch::restore(const SamplerPosition& position) {
  if (position.draws > position.size) {
    throw base::InvalidArgument(base::cat("[select] position ", position.draws, " in an epoch of ",
                                          position.size, " items: give a state that was saved"));
  }
  at_ = position;
  version_.reset();
}

base::Permutation Epoch::order(uint64_t seed) const {
  const base::Draw128 key = base::philox(seed, kShuffleStream, at_.epoch);
  return {at_.size, key.hi, key.lo};
}

}  // namespace gear::select
