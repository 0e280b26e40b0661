#include "group/parcels/parcel_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/threads/prefetch.h"
#include "group/parcels/parcel_format.h"
#include "plan/window_runs.h"

namespace gear::group {
namespace {

// Where an array of a parcel begins, and the next one after it.
template <class T>
T* take(std::byte*& next, uint64_t count) {
  auto* const begin = reinterpret_cast<T*>(next);
  next += count * sizeof(T);
  return begin;
}

// What a parcel is written from.
struct Items {
  const store::Index& index;
  const select::Selection& selection;
  std::span<const uint32_t> which;
  ParcelParts parts;
  base::ThreadPool& pool;

  store::Anchor anchor(uint64_t i) const { return selection.anchors[which[i]]; }
};

void put_draws(const Items& items, int64_t* ids, float* probabilities) {
  items.pool.parallel_for(items.parts.size(), [&](size_t p) {
    for (uint64_t i = items.parts.begin(p); i < items.parts.end(p); ++i) {
      const store::Anchor anchor = items.anchor(i);
      ids[i] = items.index.id(anchor, items.selection.unit);
      probabilities[i] = items.selection.probabilities[items.which[i]];
      base::prefetch(&items.index.episode(items.index.page(anchor.page).episode).begin);
    }
  });
}

// The runs of all items in one window, part by part: part p's begin at runs + p * most, with
// targets that count from the part's first row.
struct PartedRuns {
  plan::Run* runs;
  uint64_t most;                 // of a part
  std::vector<ParcelSums> sums;  // before every part, and in all

  std::span<const plan::Run> of(size_t p) const {
    return {runs + p * most, sums[p + 1].runs - sums[p].runs};
  }
};

// Fills in pieces, and standings unless null.
PartedRuns list_runs(const Items& items, const plan::WindowRuns& window, plan::Run* room,
                     uint64_t most, ParcelPiece* pieces, uint64_t* standings) {
  PartedRuns out{room, most, std::vector<ParcelSums>(items.parts.size() + 1)};
  items.pool.parallel_for(items.parts.size(), [&](size_t p) {
    plan::Run* const begin = room + p * most;
    plan::Run* end = begin;
    uint32_t row = 0;
    for (uint64_t i = items.parts.begin(p); i < items.parts.end(p); ++i) {
      const store::Anchor anchor = items.anchor(i);
      if (standings == nullptr && window.lies_in_page(anchor)) {
        *end = window.in_page(anchor, row);
        pieces[i] = {end->count, 0};
        row += end->count;
        ++end;
        continue;
      }
      const plan::Extent extent = window.extent(anchor);
      pieces[i] = {extent.count, extent.place};
      if (standings != nullptr) {
        standings[i] = window.standing(anchor, extent).pack();
      }
      end = window.add(anchor, extent, row, end);
      row += extent.count;
    }
    out.sums[p + 1] = {static_cast<uint64_t>(end - begin), row, 0};
  });
  add_up(out.sums);
  return out;
}

// One part behind the other, with targets that count from the first row of all.
void close_up(const PartedRuns& parted) {
  for (size_t p = 1; p + 1 < parted.sums.size(); ++p) {
    plan::Run* out = parted.runs + parted.sums[p].runs;
    const auto row = static_cast<uint32_t>(parted.sums[p].steps);
    for (const plan::Run& run : parted.of(p)) {
      *out++ = {run.page, run.row, run.count, run.target + row};
    }
  }
}

void put_runs(const Items& items, const PartedRuns& parted, uint32_t* firsts, ParcelRun* runs) {
  items.pool.parallel_for(items.parts.size(), [&](size_t p) {
    uint64_t next = parted.sums[p].runs;
    firsts[p] = static_cast<uint32_t>(next);
    for (const plan::Run& run : parted.of(p)) {
      runs[next++] = {run.page, run.row, run.count};
    }
  });
}

}  // namespace

ParcelWriter::ParcelWriter(const plan::BatchLayout& layout, const store::PageLayout& pages,
                           uint32_t part_items)
    : layout_(layout),
      pages_(pages),
      part_items_(part_items),
      deriving_windows_(static_cast<uint64_t>(
          std::ranges::count_if(layout.windows, &plan::BatchLayout::SharedWindow::derives))),
      pool_(base::ThreadPool::shared()) {
  GEAR_CHECK(part_items_ > 0);
}

plan::PackedRows ParcelWriter::write(const store::Index& index, const select::Selection& selection,
                                     std::span<const uint32_t> which,
                                     std::span<const uint32_t> places, bool mapped,
                                     std::vector<std::byte>& bytes, plan::Plan& rows) const {
  GEAR_CHECK(which.size() == places.size());
  rows.reset();
  const uint64_t count = which.size();
  if (count == 0) {
    bytes.resize(sizeof(ParcelHeader));
    std::byte* begin = bytes.data();
    *take<ParcelHeader>(begin, 1) = {0, mapped, part_items_, 0, kRowsApart};
    return {};
  }
  bytes.resize(mapped ? most_bytes(count) : front_bytes(count));
  const Items items{index, selection, which, {count, part_items_}, pool_};
  std::byte* next = bytes.data();
  *take<ParcelHeader>(next, 1) = {static_cast<uint32_t>(count), mapped, part_items_, 0, kRowsApart};
  int64_t* const ids = take<int64_t>(next, count);
  put_draws(items, ids, take<float>(next, count));
  std::ranges::copy(places, take<uint32_t>(next, count));
  auto* pieces = take<ParcelPiece>(next, count * layout_.windows.size());
  auto* standings = take<uint64_t>(next, count * deriving_windows_);

  std::vector<uint64_t> rows_of_windows;
  for (const plan::BatchLayout::SharedWindow& shared : layout_.windows) {
    const plan::WindowRuns window(index, pages_.page_steps, shared.window);
    rows.begin_window(most_runs(shared, count));
    const PartedRuns parted =
        list_runs(items, window, rows.room(), most_runs(shared, part_items_),
                  std::exchange(pieces, pieces + count),
                  shared.derives ? std::exchange(standings, standings + count) : nullptr);
    const ParcelSums& all = parted.sums.back();
    if (mapped) {
      *take<uint32_t>(next, 1) = static_cast<uint32_t>(all.runs);
      uint32_t* const firsts = take<uint32_t>(next, items.parts.size());
      put_runs(items, parted, firsts, take<ParcelRun>(next, all.runs));
      rows.reset();
    } else {
      close_up(parted);
      rows.fill(all.runs);
      rows_of_windows.push_back(all.steps);
    }
  }
  bytes.resize(static_cast<uint64_t>(next - bytes.data()));
  if (mapped) {
    return {};
  }
  return {layout_, pages_, std::move(rows_of_windows)};
}

uint64_t ParcelWriter::most_runs(const plan::BatchLayout::SharedWindow& shared,
                                 uint64_t items) const {
  return plan::most_runs(items, shared.window.length(), pages_.page_steps);
}

uint64_t ParcelWriter::front_bytes(uint64_t items) const {
  return sizeof(ParcelHeader) + items * (sizeof(int64_t) + sizeof(float) + sizeof(uint32_t) +
                                         layout_.windows.size() * sizeof(ParcelPiece) +
                                         deriving_windows_ * sizeof(uint64_t));
}

uint64_t ParcelWriter::most_bytes(uint64_t items) const {
  uint64_t bytes = front_bytes(items);
  for (const plan::BatchLayout::SharedWindow& shared : layout_.windows) {
    bytes += (1 + ParcelParts{items, part_items_}.size()) * sizeof(uint32_t) +
             most_runs(shared, items) * sizeof(ParcelRun);
  }
  return bytes;
}

std::byte* room_behind(Parcel& parcel, std::vector<std::byte>& message) {
  put_rows_at(parcel, kRowsBehind);
  message.resize(parcel.bytes.size() + parcel.rows.bytes);
  std::ranges::copy(parcel.bytes, message.begin());
  parcel.message = message;
  return message.data() + parcel.bytes.size();
}

void put_rows_at(Parcel& parcel, uint64_t place) {
  reinterpret_cast<ParcelHeader*>(parcel.bytes.data())->rows_at = place;
}

std::span<const transport::ConstBytes> exchange_parcels(transport::Transport& data,
                                                        const DrawnBatch& batch) {
  std::vector<transport::ConstBytes> to(batch.parcels.size());
  for (size_t c = 0; c < to.size(); ++c) {
    if (batch.targets[c] != 0) {
      const Parcel& parcel = batch.parcels[c];
      to[c] = parcel.message.empty() ? transport::ConstBytes(parcel.bytes) : parcel.message;
    }
  }
  return data.exchange_sparse(to, batch.sources);
}

}  // namespace gear::group
