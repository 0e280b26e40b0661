#include "select/group/own_places.h"

#include <algorithm>
#include <array>

namespace gear::select {
namespace {

constexpr uint64_t kPartItems = 16384;  // some 100 microseconds or more
constexpr uint64_t kSortCost = 8;       // of an item that is kept, in evaluations
constexpr size_t kCells = 256;

uint64_t parts_of(uint64_t size) { return (size + kPartItems - 1) / kPartItems; }

}  // namespace

OwnPlaces::OwnPlaces(uint64_t keep)
    : keep_(keep), pool_(base::ThreadPool::shared()), cells_(kCells), sorted_(kCells) {}

// As many equal stretches as keep about keep_ items each.
uint64_t OwnPlaces::stretch(uint64_t all, uint64_t size) const {
  const uint64_t stretches = std::max<uint64_t>(1, size / keep_);
  return all / stretches + 1;
}

bool OwnPlaces::pays(uint64_t all, uint64_t size) const {
  const uint64_t kept = std::min(size, 2 * keep_);
  return size + kSortCost * kept <= std::min(all, stretch(all, size)) / 2;
}

void OwnPlaces::find(const base::Permutation& order, uint64_t begin, uint64_t size, uint64_t first,
                     uint64_t items, std::vector<uint32_t>& numbers,
                     std::vector<uint64_t>& offsets) {
  const Range own{begin, size};
  if (order != order_ || own != own_ || first < from_ || first + items > to_) {
    const uint64_t length = stretch(order.size(), size) + items;  // it ends amid a batch
    look(order, own, first, std::min(order.size(), first + length));
  }
  numbers.clear();
  offsets.clear();
  for (uint64_t c = (first - from_) / cell_; from_ + c * cell_ < first + items; ++c) {
    if (!sorted_[c]) {
      std::ranges::sort(cells_[c], {}, [](const Place& one) { return one.place; });
      sorted_[c] = true;
    }
    for (const Place& one : cells_[c]) {
      if (one.place - first < items) {
        numbers.push_back(static_cast<uint32_t>(one.place - first));
        offsets.push_back(one.offset);
      }
    }
  }
}

void OwnPlaces::look(const base::Permutation& order, Range own, uint64_t from, uint64_t to) {
  to_ = from_;  // nothing is known if memory runs out
  parts_.resize(parts_of(own.size));
  pool_.parallel_for(parts_.size(), [&](size_t p) {
    std::vector<Place>& part = parts_[p];
    std::array<uint64_t, 512> indices;
    const uint64_t end = std::min(own.size, (p + 1) * kPartItems);
    part.clear();
    for (uint64_t offset = p * kPartItems; offset < end;) {
      const size_t some = std::min<uint64_t>(indices.size(), end - offset);
      order.indices_from(own.begin + offset, {indices.data(), some});
      for (size_t i = 0; i < some; ++i, ++offset) {
        if (indices[i] - from < to - from) {
          part.push_back({indices[i], offset});
        }
      }
    }
  });
  cell_ = (to - from) / cells_.size() + 1;
  for (std::vector<Place>& cell : cells_) {
    cell.clear();
  }
  for (const std::vector<Place>& part : parts_) {
    for (const Place& one : part) {
      cells_[(one.place - from) / cell_].push_back(one);
    }
  }
  sorted_.assign(cells_.size(), false);
  order_ = order;
  own_ = own;
  from_ = from;
  to_ = to;
}

}  // namespace gear::select
