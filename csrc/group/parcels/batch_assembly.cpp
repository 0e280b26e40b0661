#include "group/parcels/batch_assembly.h"

#include <utility>

#include "base/errors.h"
#include "group/parcels/parcel_format.h"
#include "plan/derived.h"
#include "plan/window_runs.h"

namespace gear::group {
namespace {

bool ascend(std::span<const uint32_t> places) {
  bool ascend = true;
  for (size_t i = 1; i < places.size(); ++i) {
    ascend &= places[i - 1] < places[i];
  }
  return ascend;
}

}  // namespace

// A parcel taken apart: its arrays, where they lie in the bytes that came.
struct BatchAssembly::Opened {
  struct Window {
    std::span<const ParcelPiece> pieces;
    std::span<const uint64_t> standings;  // none where nothing is derived
    std::span<const uint32_t> firsts;     // run of each part; none where the rows come packed
    std::span<const ParcelRun> runs;
    std::vector<ParcelSums> sums;  // before every part, and in all
  };

  uint32_t owner = 0;
  uint64_t mapped_pages = 0;
  std::span<const std::byte> left;  // of the bytes, behind what was taken
  uint64_t rows_at = kRowsApart;
  ParcelParts parts;  // no items: nothing came
  std::span<const int64_t> ids;
  std::span<const float> probabilities;
  std::span<const uint32_t> places;
  std::vector<Window> windows;
  plan::Plan plan;
  plan::PackedRows packed;

  void expect(bool sound, const char* what) const {
    if (!sound) [[unlikely]] {
      throw base::TransportError(
          base::cat("[loader] the parcel of rank ", owner, " is damaged: ", what,
                    "; ranks of one group must run the same build with the same loader"));
    }
  }

  template <class T>
  std::span<const T> take(uint64_t count) {
    expect(count <= left.size() / sizeof(T), "it ends too early");
    const std::span values(reinterpret_cast<const T*>(left.data()), count);
    left = left.subspan(values.size_bytes());
    return values;
  }
};

BatchAssembly::BatchAssembly(const plan::BatchLayout& layout, const store::PageLayout& pages,
                             std::span<const uint64_t> mapped_pages)
    : layout_(layout),
      pages_(pages),
      pool_(base::ThreadPool::shared()),
      parcels_(mapped_pages.size()) {
  for (uint32_t o = 0; o < parcels_.size(); ++o) {
    parcels_[o].owner = o;
    parcels_[o].mapped_pages = mapped_pages[o];
    parcels_[o].windows.resize(layout.windows.size());
  }
}

BatchAssembly::~BatchAssembly() = default;

void BatchAssembly::begin(plan::Batch& batch, uint64_t items) {
  GEAR_CHECK(items <= layout_.batch_size);
  batch_ = &batch;
  batch.items = items;
  batch.rows.clear();
  batch.bytes = 0;
  filled_.assign(items, 0);
  num_filled_ = 0;
  for (Opened& parcel : parcels_) {
    parcel.parts = {};
    parcel.plan.reset();
    parcel.packed = {};
    parcel.left = {};
    parcel.rows_at = kRowsApart;
  }
}

void BatchAssembly::add(uint32_t owner, std::span<const std::byte> bytes) {
  Opened& parcel = parcels_[owner];
  GEAR_CHECK(parcel.parts.items == 0);
  open(parcel, bytes);
  pool_.parallel_for(parcel.parts.size(), [&](size_t p) {
    put_items(parcel, p);
    for (size_t w = 0; w < parcel.windows.size(); ++w) {
      put_pieces(parcel, w, p);
      if (parcel.mapped_pages > 0) {
        check_runs(parcel, w, p);
      }
    }
  });
  num_filled_ += parcel.parts.items;
  for (Opened::Window& window : parcel.windows) {
    add_up(window.sums);
  }
}

// Finds the arrays; what is in them is looked at part by part. That places ascend is known before:
// no two parts of the items have one in common, and so none meets another where it writes.
void BatchAssembly::open(Opened& parcel, std::span<const std::byte> bytes) {
  GEAR_CHECK(reinterpret_cast<uintptr_t>(bytes.data()) % alignof(uint64_t) == 0);
  parcel.left = bytes;
  const ParcelHeader header = parcel.take<ParcelHeader>(1)[0];
  const uint32_t items = header.items;
  const bool mapped = parcel.mapped_pages > 0;
  parcel.expect(items <= batch_->items - num_filled_, "it has more items than the batch");
  parcel.expect(header.mapped == (mapped ? 1U : 0U), "its rows are not where they were to be");
  parcel.expect(header.part_items > 0, "its parts are empty");
  if (items == 0) {
    parcel.expect(parcel.left.empty(), "bytes follow its end");
    return;
  }
  parcel.expect(!mapped || header.rows_at == kRowsApart, "its rows are not where they were to be");
  parcel.rows_at = header.rows_at;
  const ParcelParts parts{items, header.part_items};
  parcel.ids = parcel.take<int64_t>(items);
  parcel.probabilities = parcel.take<float>(items);
  parcel.places = parcel.take<uint32_t>(items);
  for (Opened::Window& window : parcel.windows) {
    window.pieces = parcel.take<ParcelPiece>(items);
    window.sums.assign(parts.size() + 1, {});
  }
  for (size_t w = 0; w < parcel.windows.size(); ++w) {
    parcel.windows[w].standings = parcel.take<uint64_t>(layout_.windows[w].derives ? items : 0);
  }
  for (size_t w = 0; w < parcel.windows.size() && mapped; ++w) {
    const uint32_t num_runs = parcel.take<uint32_t>(1)[0];
    parcel.windows[w].firsts = parcel.take<uint32_t>(parts.size());
    parcel.windows[w].runs = parcel.take<ParcelRun>(num_runs);
  }
  parcel.expect(parcel.left.empty() || parcel.rows_at == kRowsBehind, "bytes follow its end");
  parcel.expect(ascend(parcel.places), "its places do not ascend");
  parcel.expect(parcel.places.back() < batch_->items, "an item has no place");
  parcel.parts = parts;
}

void BatchAssembly::put_items(const Opened& parcel, size_t part) {
  int64_t* const ids = batch_->at<int64_t>(layout_.ids);
  float* const probabilities = batch_->at<float>(layout_.probabilities);
  uint8_t* const filled = filled_.data();
  const std::span<const uint32_t> places = parcel.places;
  const std::span<const int64_t> given_ids = parcel.ids;
  const std::span<const float> given_probabilities = parcel.probabilities;
  const uint64_t end = parcel.parts.end(part);
  for (uint64_t i = parcel.parts.begin(part); i < end; ++i) {
    const uint32_t place = places[i];
    parcel.expect(filled[place] == 0, "an item's place is taken");
    filled[place] = 1;
    ids[place] = given_ids[i];
    probabilities[place] = given_probabilities[i];
  }
}

// Which steps of the window there are: lengths and masks.
void BatchAssembly::put_pieces(Opened& parcel, size_t window, size_t part) {
  const plan::BatchLayout::SharedWindow& shared = layout_.windows[window];
  const auto length = static_cast<uint32_t>(shared.window.length());
  const std::span<const ParcelPiece> pieces = parcel.windows[window].pieces;
  const std::span<const uint32_t> places = parcel.places;
  int32_t* const lengths = batch_->at<int32_t>(shared.lengths);
  bool* const mask = layout_.packed ? nullptr : batch_->at<bool>(shared.mask);
  ParcelSums sums;
  const uint64_t end = parcel.parts.end(part);
  for (uint64_t i = parcel.parts.begin(part); i < end; ++i) {
    const ParcelPiece piece = pieces[i];
    parcel.expect(piece.count <= length && piece.place <= length - piece.count,
                  "steps lie outside their window");
    lengths[places[i]] = static_cast<int32_t>(piece.count);
    if (mask != nullptr) {
      plan::write_mask(length, piece.place, piece.count, mask + uint64_t{places[i]} * length);
    }
    sums.steps += piece.count;
    sums.runs += piece.count > 0 ? 1 : 0;  // of packed rows
    sums.short_items += piece.count < length ? 1 : 0;
  }
  parcel.windows[window].sums[part + 1] = sums;
}

// The runs of the part's items are in its own share of the runs, and in the owner's pages.
void BatchAssembly::check_runs(Opened& parcel, size_t window, size_t part) const {
  Opened::Window& opened = parcel.windows[window];
  const std::span<const uint32_t> firsts = opened.firsts;
  const std::span<const ParcelRun> runs = opened.runs;
  const size_t stop = part + 1 < firsts.size() ? firsts[part + 1] : runs.size();
  size_t next = firsts[part];
  parcel.expect(part > 0 || next == 0, "there are too many steps");
  parcel.expect(next <= stop && stop <= runs.size(), "steps are missing");
  opened.sums[part + 1].runs = stop - next;
  const uint64_t end = parcel.parts.end(part);
  for (uint64_t i = parcel.parts.begin(part); i < end; ++i) {
    uint32_t left = opened.pieces[i].count;
    while (left > 0) {
      parcel.expect(next < stop, "steps are missing");
      const ParcelRun run = runs[next++];
      parcel.expect(run.page < parcel.mapped_pages && run.row < pages_.page_steps &&
                        run.count - 1 < left && run.count <= pages_.page_steps - run.row,
                    "steps lie outside the pages");
      left -= run.count;
    }
  }
  parcel.expect(next == stop, "there are too many steps");
}

void BatchAssembly::finish() {
  if (num_filled_ != batch_->items) {
    throw base::TransportError(base::cat("[loader] the parcels of all ranks fill ", num_filled_,
                                         " of ", batch_->items,
                                         " items: ranks of one group must make the same calls"));
  }
  padding_.reset();
  for (size_t w = 0; w < layout_.windows.size(); ++w) {
    const plan::BatchLayout::SharedWindow& shared = layout_.windows[w];
    uint64_t rows = batch_->items * shared.window.length();
    if (layout_.packed) {
      const auto* lengths = batch_->at<int32_t>(shared.lengths);
      auto* cu_seqlens = batch_->at<int32_t>(shared.cu_seqlens);
      cu_seqlens[0] = 0;
      for (uint64_t i = 0; i < batch_->items; ++i) {
        cu_seqlens[i + 1] = cu_seqlens[i] + lengths[i];
      }
      rows = static_cast<uint64_t>(cu_seqlens[batch_->items]);
    }
    batch_->rows.push_back(rows);
    plan_padding(w);
    for (Opened& parcel : parcels_) {
      if (parcel.parts.items > 0) {
        plan_window(w, parcel);
      }
    }
  }
  for (const plan::BatchLayout::DerivedOutput& derived : layout_.derived) {
    for (const Opened& parcel : parcels_) {
      fill_derived(derived, parcel);
    }
  }
  for (Opened& parcel : parcels_) {
    batch_->bytes += bytes(parcel.owner);
    if (parcel.parts.items == 0 || parcel.mapped_pages > 0) {
      continue;
    }
    std::vector<uint64_t> rows;
    rows.reserve(parcel.windows.size());
    for (const Opened::Window& window : parcel.windows) {
      rows.push_back(window.sums.back().steps);
    }
    parcel.packed = {layout_, pages_, std::move(rows)};
    parcel.expect(parcel.rows_at != kRowsBehind || parcel.left.size() == parcel.packed.bytes,
                  "its rows are more or less than it says");
    parcel.expect(parcel.rows_at == kRowsApart || parcel.packed.bytes > 0,
                  "rows are to be where there are none");
  }
}

void BatchAssembly::fill_derived(const plan::BatchLayout::DerivedOutput& derived,
                                 const Opened& parcel) {
  const Opened::Window& window = parcel.windows[derived.window];
  pool_.parallel_for(parcel.parts.size(), [&](size_t p) {
    for (uint64_t i = parcel.parts.begin(p); i < parcel.parts.end(p); ++i) {
      const ParcelPiece piece = window.pieces[i];
      plan::write_derived(derived, plan::StandingFacts::unpack(window.standings[i]), piece.place,
                          piece.count, parcel.places[i], *batch_);
    }
  });
}

// From the parcel's packed rows, one piece behind the other, or from the owner's pages.
void BatchAssembly::plan_window(size_t window, Opened& parcel) {
  const plan::BatchLayout::SharedWindow& shared = layout_.windows[window];
  const auto length = static_cast<uint32_t>(shared.window.length());
  const Opened::Window& opened = parcel.windows[window];
  const int32_t* const begins = layout_.packed ? batch_->at<int32_t>(shared.cu_seqlens) : nullptr;
  const bool mapped = parcel.mapped_pages > 0;
  const uint64_t num_runs = opened.sums.back().runs;
  parcel.plan.begin_window(num_runs);
  plan::Run* const plan = parcel.plan.room();
  pool_.parallel_for(parcel.parts.size(), [&](size_t p) {
    auto row = static_cast<uint32_t>(opened.sums[p].steps);
    size_t next = opened.sums[p].runs;
    plan::Run* out = plan + next;
    const std::span<const uint32_t> places = parcel.places;
    const std::span<const ParcelPiece> pieces = opened.pieces;
    const std::span<const ParcelRun> runs = opened.runs;
    const uint64_t end = parcel.parts.end(p);
    for (uint64_t i = parcel.parts.begin(p); i < end; ++i) {
      const uint32_t place = places[i];
      const ParcelPiece piece = pieces[i];
      uint32_t target =
          begins != nullptr ? static_cast<uint32_t>(begins[place]) : place * length + piece.place;
      if (!mapped) {
        if (piece.count > 0) {
          *out++ = {0, row, piece.count, target};
          row += piece.count;
        }
        continue;
      }
      for (uint32_t left = piece.count; left > 0;) {
        const ParcelRun run = runs[next++];
        *out++ = {run.page, run.row, run.count, target};
        target += run.count;
        left -= run.count;
      }
    }
  });
  parcel.plan.fill(num_runs);
}

void BatchAssembly::plan_padding(size_t window) {
  if (layout_.packed) {
    padding_.begin_window(0);
    return;
  }
  const auto length = static_cast<uint32_t>(layout_.windows[window].window.length());
  uint64_t short_items = 0;
  for (const Opened& parcel : parcels_) {
    short_items += parcel.parts.items > 0 ? parcel.windows[window].sums.back().short_items : 0;
  }
  padding_.begin_window(2 * short_items);
  plan::Run* end = padding_.room();
  for (const Opened& parcel : parcels_) {
    const Opened::Window& opened = parcel.windows[window];
    for (size_t p = 0; p < parcel.parts.size(); ++p) {
      if (opened.sums[p].short_items == opened.sums[p + 1].short_items) {
        continue;
      }
      for (uint64_t i = parcel.parts.begin(p); i < parcel.parts.end(p); ++i) {
        const ParcelPiece piece = opened.pieces[i];
        if (piece.count < length) {
          end = plan::add_zeros(length, piece.place, piece.count, parcel.places[i] * length, end);
        }
      }
    }
  }
  padding_.fill(static_cast<uint64_t>(end - padding_.room()));
}

const plan::Plan& BatchAssembly::plan(uint32_t owner) const { return parcels_[owner].plan; }

const plan::PackedRows& BatchAssembly::packed(uint32_t owner) const {
  return parcels_[owner].packed;
}

uint64_t BatchAssembly::items(uint32_t owner) const { return parcels_[owner].parts.items; }

uint64_t BatchAssembly::rows_at(uint32_t owner) const { return parcels_[owner].rows_at; }

std::span<const std::byte> BatchAssembly::rows_behind(uint32_t owner) const {
  return parcels_[owner].left;
}

uint64_t BatchAssembly::bytes(uint32_t owner) const {
  const Opened& parcel = parcels_[owner];
  uint64_t sum = 0;
  for (size_t w = 0; w < layout_.windows.size() && parcel.parts.items > 0; ++w) {
    for (const size_t o : layout_.windows[w].outputs) {
      sum += parcel.windows[w].sums.back().steps * pages_.step_bytes[layout_.outputs[o].column];
    }
  }
  return sum;
}

}  // namespace gear::group
