#include "select/chance.h"

#include <algorithm>
#include <array>

#include "base/errors.h"

namespace gear::select {
namespace {

// Streams of the generator.
constexpr uint64_t kDraws = 0;
constexpr uint64_t kShuffles = 1;

template <size_t kCount>
std::array<uint64_t, kCount> numbers_of(std::span<const uint64_t> position) {
  std::array<uint64_t, kCount> numbers{};
  if (position.empty()) {
    return numbers;
  }
  if (position.size() < kCount) {
    throw base::InvalidArgument(base::cat("[sampler] a position of ", position.size(),
                                          " number(s), of a law that has ", kCount,
                                          ": give a state that was saved"));
  }
  std::copy_n(position.begin(), kCount, numbers.begin());
  return numbers;
}

}  // namespace

uint64_t Independent::next(uint64_t total, uint64_t, uint64_t count) {
  if (total == 0) {
    return 0;
  }
  first_ = made_;
  total_ = total;
  made_ += count;
  return count;
}

void Independent::targets(uint64_t first, std::span<uint64_t> targets) const {
  std::array<base::Draw128, 64> bits;
  for (size_t done = 0; done < targets.size();) {
    const size_t count = std::min(bits.size(), targets.size() - done);
    base::philox_fill(seed_, kDraws, first_ + first + done, {bits.data(), count});
    for (size_t i = 0; i < count; ++i) {
      targets[done + i] = base::scale_to(bits[i], total_);
    }
    done += count;
  }
}

size_t Independent::scan(const base::RangePart& part, uint64_t first, uint32_t some,
                         uint32_t* numbers, uint64_t* offsets) const {
  constexpr uint32_t kAtOnce = 256;  // stay in the nearest cache
  std::array<uint32_t, kAtOnce + base::KeptDraws::kRoom> which;
  std::array<uint64_t, kAtOnce + base::KeptDraws::kRoom> hi;
  std::array<uint64_t, kAtOnce + base::KeptDraws::kRoom> lo;
  size_t kept = 0;
  for (uint32_t done = 0; done < some; done += std::min(kAtOnce, some - done)) {
    const uint64_t number = first + done;
    const size_t found =
        base::philox_scan(seed_, kDraws, first_ + number, std::min(kAtOnce, some - done), part.low,
                          part.high, {which.data(), hi.data(), lo.data()});
    for (size_t i = 0; i < found; ++i) {
      const base::Draw128 draw{hi[i], lo[i]};
      const uint64_t offset = base::scale_to(draw, part.all) - part.begin;
      numbers[kept] = static_cast<uint32_t>(number + which[i]);
      offsets[kept] = part.places == part.size
                          ? offset
                          : base::scale_to(base::fraction_of(draw, part.all), part.places);
      kept += offset < part.size ? 1 : 0;
    }
  }
  return kept;
}

void Independent::restore(std::span<const uint64_t> position) {
  made_ = numbers_of<1>(position)[0];
}

uint64_t Epoch::next(uint64_t total, uint64_t version, uint64_t count) {
  if (size_ == 0) {
    size_ = total;
    version_ = version;
  }
  if (!version_) {
    version_ = version;  // restored: the content is as it was saved
  }
  if (*version_ != version || total != size_) {
    const uint64_t began_with = size_;
    begin_next();
    throw base::InvalidArgument(
        base::cat("[sampler] the buffer changed in the middle of a sequential epoch (", began_with,
                  " items when it began, ", total,
                  " offered): the next epoch begins; append between epochs only"));
  }
  const uint64_t left = size_ - drawn_;
  if (left == 0 || (drops_last_ && left < count)) {
    begin_next();
    return 0;
  }
  first_ = drawn_;
  const uint64_t items = std::min(count, left);
  drawn_ += items;
  return items;
}

void Epoch::targets(uint64_t first, std::span<uint64_t> targets) const {
  order().elements_from(first_ + first, targets);
}

size_t Epoch::scan(const base::RangePart& part, uint64_t first, uint32_t some, uint32_t* numbers,
                   uint64_t* offsets) const {
  const base::Permutation shuffled = order();
  std::array<uint64_t, 512> elements;
  size_t kept = 0;
  for (uint32_t done = 0; done < some; done += elements.size()) {
    const size_t count = std::min<size_t>(elements.size(), some - done);
    shuffled.elements_from(first_ + first + done, {elements.data(), count});
    for (size_t i = 0; i < count; ++i) {
      const uint64_t offset = elements[i] - part.begin;
      numbers[kept] = static_cast<uint32_t>(first + done + i);
      offsets[kept] = offset;
      kept += offset < part.size ? 1 : 0;
    }
  }
  return kept;
}

void Epoch::restore(std::span<const uint64_t> position) {
  const auto [drawn, epoch, size] = numbers_of<3>(position);
  if (drawn > size) {
    throw base::InvalidArgument(base::cat("[sampler] position ", drawn, " in an epoch of ", size,
                                          " items: give a state that was saved"));
  }
  drawn_ = drawn;
  epoch_ = epoch;
  size_ = size;
  version_.reset();
}

base::Permutation Epoch::order() const {
  const base::Draw128 key = base::philox(seed_, kShuffles, epoch_);
  return {size_, key.hi, key.lo};
}

void Epoch::begin_next() {
  drawn_ = size_ = 0;
  ++epoch_;
  version_.reset();
}

}  // namespace gear::select
