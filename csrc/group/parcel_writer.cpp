#include "group/parcel_writer.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/errors.h"
#include "group/parcel_format.h"
#include "plan/window_runs.h"
#include "transport/typed.h"

namespace gear::group {
namespace {

// Values one behind the other in a parcel, at any address.
template <class T>
class Room {
 public:
  Room(std::vector<std::byte>& bytes, uint64_t at) : data_(bytes.data() + at) {}
  void put(uint64_t i, const T& value) const {
    std::memcpy(data_ + i * sizeof(T), &value, sizeof(T));
  }

 private:
  std::byte* data_;
};

// Makes room for `more` bytes behind the first `used`; what lies there is about to be written over.
uint64_t grow(std::vector<std::byte>& bytes, uint64_t used, uint64_t more) {
  if (bytes.size() < used + more) {
    bytes.resize(used + more);
  }
  return used + more;
}

// The items of a parcel, in parts that the pool shares.
struct Items {
  const store::Index& index;
  const select::Selection& selection;
  std::span<const uint32_t> which;
  uint64_t part_items;
  base::ThreadPool& pool;

  size_t num_parts() const { return (which.size() + part_items - 1) / part_items; }
  store::Anchor anchor(uint64_t i) const { return selection.anchors[which[i]]; }

  template <class Work>
  void each_part(const Work& work) const {
    pool.parallel_for(num_parts(),
                      [&](size_t p) { work(p, ParcelPart(p, part_items, which.size())); });
  }
};

void put_draws(const Items& items, Room<int64_t> ids, Room<float> probabilities) {
  items.each_part([&](size_t, ParcelPart part) {
    for (uint64_t i = part.begin; i < part.end; ++i) {
      const store::Anchor anchor = items.anchor(i);
      ids.put(i, items.index.id(anchor, items.selection.unit));
      probabilities.put(i, items.selection.probabilities[items.which[i]]);
      __builtin_prefetch(&items.index.episode(items.index.page(anchor.page).episode));
    }
  });
}

// The runs of all items in one window, part by part: each part's begin where they would if all
// parts before it had the most that they can have.
struct PartedRuns {
  struct Before {
    uint64_t runs = 0;
    uint64_t rows = 0;
  };

  plan::Run* room;
  uint64_t most;               // of a part
  std::vector<Before> before;  // every part, and in all

  std::span<const plan::Run> of(size_t p) const {
    return {room + p * most, before[p + 1].runs - before[p].runs};
  }
  const Before& all() const { return before.back(); }
};

// Run::target counts from the first row of the part.
PartedRuns list_runs(const Items& items, const plan::WindowRuns& window, plan::Run* room,
                     Room<ParcelPiece> pieces, std::optional<Room<uint64_t>> standings) {
  PartedRuns out{room, window.most_runs(items.part_items), {}};
  out.before.resize(items.num_parts() + 1);
  items.each_part([&](size_t p, ParcelPart part) {
    plan::Run* const begin = room + p * out.most;
    plan::Run* end = begin;
    uint32_t row = 0;
    for (uint64_t i = part.begin; i < part.end; ++i) {
      const plan::WindowRuns::Steps steps = window.steps(items.anchor(i));
      pieces.put(i, {steps.extent.count, steps.extent.place});
      if (standings) {
        standings->put(i, window.standing(items.anchor(i), steps.extent).pack());
      }
      if (steps.extent.count > 0) {
        end = window.add(steps, row, end);
      }
      row += steps.extent.count;
    }
    out.before[p + 1] = {static_cast<uint64_t>(end - begin), row};
  });
  for (size_t p = 1; p < out.before.size(); ++p) {
    out.before[p].runs += out.before[p - 1].runs;
    out.before[p].rows += out.before[p - 1].rows;
  }
  return out;
}

// One behind the other, with targets that count from the first row of all.
void close_up(const PartedRuns& runs) {
  for (size_t p = 1; p + 1 < runs.before.size(); ++p) {
    plan::Run* out = runs.room + runs.before[p].runs;
    const auto row = static_cast<uint32_t>(runs.before[p].rows);
    for (const plan::Run& run : runs.of(p)) {
      *out++ = {run.page, run.row, run.count, run.target + row};
    }
  }
}

void put_runs(const Items& items, const PartedRuns& runs, Room<uint32_t> firsts,
              Room<ParcelRun> out) {
  items.each_part([&](size_t p, ParcelPart) {
    uint64_t next = runs.before[p].runs;
    firsts.put(p, static_cast<uint32_t>(next));
    for (const plan::Run& run : runs.of(p)) {
      out.put(next++, {run.page, run.row, run.count});
    }
  });
}

}  // namespace

ParcelWriter::ParcelWriter(const plan::BatchLayout& layout, const store::PageLayout& pages,
                           uint32_t part_items)
    : layout_(layout), pages_(pages), part_items_(part_items), pool_(base::ThreadPool::shared()) {
  GEAR_CHECK(part_items_ > 0);
}

plan::PackedRows ParcelWriter::write(const store::Index& index, const select::Selection& selection,
                                     std::span<const uint32_t> which,
                                     std::span<const uint32_t> places, bool mapped,
                                     std::vector<std::byte>& bytes, plan::Plan& rows) const {
  GEAR_CHECK(which.size() == places.size());
  rows.reset();
  if (which.empty()) {
    bytes.clear();
    return {};
  }
  const Items items{index, selection, which, part_items_, pool_};
  const uint64_t count = which.size();
  const ParcelHeader header{static_cast<uint32_t>(count), mapped, part_items_, 0};
  const uint64_t probabilities = sizeof header + count * sizeof(int64_t);
  const uint64_t places_at = probabilities + count * sizeof(float);
  uint64_t pieces = places_at + count * sizeof(uint32_t);
  uint64_t standings = pieces + layout_.windows.size() * count * sizeof(ParcelPiece);
  const auto deriving = std::count_if(layout_.windows.begin(), layout_.windows.end(),
                                      [](const auto& window) { return window.derives; });
  uint64_t used =
      grow(bytes, standings, static_cast<uint64_t>(deriving) * count * sizeof(uint64_t));
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + places_at, places.data(), places.size_bytes());
  put_draws(items, {bytes, sizeof header}, {bytes, probabilities});

  std::vector<uint64_t> rows_of_windows;
  for (const plan::BatchLayout::SharedWindow& shared : layout_.windows) {
    const plan::WindowRuns window(index, pages_.page_steps, shared.window);
    rows.begin_window(window.most_runs(count));
    std::optional<Room<uint64_t>> own_standings;
    if (shared.derives) {
      own_standings.emplace(bytes, standings);
      standings += count * sizeof(uint64_t);
    }
    const PartedRuns runs = list_runs(items, window, rows.room(), {bytes, pieces}, own_standings);
    pieces += count * sizeof(ParcelPiece);
    if (!mapped) {
      close_up(runs);
      rows.fill(runs.all().runs);
      rows_of_windows.push_back(runs.all().rows);
      continue;
    }
    const uint64_t firsts = used + sizeof(uint32_t);
    const uint64_t runs_at = firsts + items.num_parts() * sizeof(uint32_t);
    const uint64_t end = grow(bytes, runs_at, runs.all().runs * sizeof(ParcelRun));
    Room<uint32_t>(bytes, used).put(0, static_cast<uint32_t>(runs.all().runs));
    put_runs(items, runs, {bytes, firsts}, {bytes, runs_at});
    used = end;
    rows.reset();
  }
  bytes.resize(used);
  if (mapped) {
    return {};
  }
  return {layout_, pages_, std::move(rows_of_windows)};
}

uint64_t ParcelWriter::most_bytes(uint64_t items) const {
  const uint64_t parts = (items + part_items_ - 1) / part_items_;
  uint64_t bytes =
      sizeof(ParcelHeader) + items * (sizeof(int64_t) + sizeof(float) + sizeof(uint32_t));
  for (const plan::BatchLayout::SharedWindow& shared : layout_.windows) {
    const uint64_t runs = plan::most_runs(items, shared.window.length(), pages_.page_steps);
    bytes += items * (sizeof(ParcelPiece) + (shared.derives ? sizeof(uint64_t) : 0)) +
             (1 + parts) * sizeof(uint32_t) + runs * sizeof(ParcelRun);
  }
  return bytes;
}

void exchange_parcels(transport::Transport& data, DrawnBatch& batch,
                      std::vector<std::vector<std::byte>>& received) {
  struct Header {
    uint64_t bytes;
    float least;
    uint32_t zero;
  };
  std::vector<Header> headers;
  headers.reserve(batch.parcels.size());
  for (const Parcel& one : batch.parcels) {
    headers.push_back({one.bytes.size(), batch.least, 0});
  }
  headers = transport::alltoall(data, headers);
  std::vector<transport::ConstBytes> to(headers.size());
  std::vector<transport::Bytes> from(headers.size());
  for (uint32_t r = 0; r < headers.size(); ++r) {
    batch.least = std::min(batch.least, headers[r].least);
    if (r == data.rank()) {
      continue;
    }
    transport::check_announced(r, headers[r].bytes, batch.most_bytes);
    received[r].resize(headers[r].bytes);
    to[r] = batch.parcels[r].bytes;
    from[r] = received[r];
  }
  std::swap(received[data.rank()], batch.parcels[data.rank()].bytes);
  data.alltoallv(to, from);
}

}  // namespace gear::group
