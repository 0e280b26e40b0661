#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "group/batch_assembly.h"
#include "group/parcel_format.h"
#include "plan/window_runs.h"

namespace gear::group {
namespace {

// Values at any address, inside a parcel.
template <class T>
class Values {
 public:
  Values() = default;
  explicit Values(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t size() const { return bytes_.size() / sizeof(T); }
  T operator[](size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * sizeof(T), sizeof(T));
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
};

// Takes a parcel apart from the front, and never reads behind its end.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, uint32_t owner) : bytes_(bytes), owner_(owner) {}

  template <class T>
  Values<T> take(uint64_t count) {
    if (count > bytes_.size() / sizeof(T)) {
      fail("it ends too early");
    }
    const Values<T> values(bytes_.first(count * sizeof(T)));
    bytes_ = bytes_.subspan(count * sizeof(T));
    return values;
  }

  void expect(bool sound, const char* what) const {
    if (!sound) [[unlikely]] {
      fail(what);
    }
  }
  void expect_end() const { expect(bytes_.empty(), "bytes follow its end"); }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw base::TransportError(
        base::cat("[collect] the parcel of rank ", owner_, " is damaged: ", what,
                  "; ranks of one group must run the same build with the same loader"));
  }

  std::span<const std::byte> bytes_;
  uint32_t owner_;
};

}  // namespace

struct BatchAssembly::Part {
  // Before a chunk of the items, or in all: runs that its plan has, steps, and items of which some
  // steps are missing.
  struct Sums {
    uint64_t runs = 0;
    uint64_t steps = 0;
    uint64_t short_items = 0;
  };

  uint64_t mapped_pages = 0;
  uint64_t chunk_items = 0;
  Values<uint32_t> places;
  std::vector<Values<ParcelPiece>> pieces;  // by window
  std::vector<Values<uint64_t>> standings;  // by window; none where nothing is derived
  std::vector<Values<ParcelRun>> runs;      // by window; none where packed
  std::vector<std::vector<Sums>> sums;      // by window: before every chunk, and in all
  plan::Plan plan;

  size_t num_chunks() const {
    return pieces.empty() ? 0 : (places.size() + chunk_items - 1) / chunk_items;
  }
  ParcelPart chunk(size_t c) const { return {c, chunk_items, places.size()}; }
  uint64_t steps(size_t window) const { return pieces.empty() ? 0 : sums[window].back().steps; }

  void forget() {
    places = {};
    pieces.clear();
    standings.clear();
    runs.clear();
    plan.reset();
  }
};

// What is read of a parcel only while it is added.
struct BatchAssembly::Incoming {
  const Reader& reader;
  Values<int64_t> ids;
  Values<float> probabilities;
  std::vector<Values<uint32_t>> begins;  // by window: first run of each chunk; none where packed
};

BatchAssembly::BatchAssembly(const plan::BatchLayout& layout, const store::PageLayout& pages,
                             std::span<const uint64_t> mapped_pages)
    : layout_(layout),
      pages_(pages),
      pool_(base::ThreadPool::shared()),
      parts_(mapped_pages.size()) {
  for (size_t o = 0; o < parts_.size(); ++o) {
    parts_[o].mapped_pages = mapped_pages[o];
    parts_[o].sums.resize(layout.windows.size());
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
  for (Part& part : parts_) {
    part.forget();
  }
}

void BatchAssembly::add(uint32_t owner, std::span<const std::byte> parcel) {
  Part& part = parts_[owner];
  GEAR_CHECK(part.pieces.empty());
  if (parcel.empty()) {
    return;
  }
  Reader reader(parcel, owner);
  const ParcelHeader header = reader.take<ParcelHeader>(1)[0];
  reader.expect(header.items <= batch_->items - num_filled_, "it has more items than the batch");
  reader.expect(header.mapped == (part.mapped_pages > 0 ? 1U : 0U),
                "its rows are not where they were to be");
  reader.expect(header.part_items > 0, "its parts are empty");
  const uint32_t items = header.items;
  Incoming incoming{reader, reader.take<int64_t>(items), reader.take<float>(items), {}};
  part.places = reader.take<uint32_t>(items);
  part.chunk_items = header.part_items;
  for (size_t w = 0; w < layout_.windows.size(); ++w) {
    part.pieces.push_back(reader.take<ParcelPiece>(items));
    part.sums[w].assign(part.num_chunks() + 1, {});
  }
  for (const plan::BatchLayout::SharedWindow& shared : layout_.windows) {
    part.standings.push_back(reader.take<uint64_t>(shared.derives ? items : 0));
  }
  for (size_t w = 0; w < layout_.windows.size() && header.mapped == 1; ++w) {
    const uint32_t num_runs = reader.take<uint32_t>(1)[0];
    incoming.begins.push_back(reader.take<uint32_t>(part.num_chunks()));
    part.runs.push_back(reader.take<ParcelRun>(num_runs));
    reader.expect((items == 0 ? num_runs : incoming.begins[w][0]) == 0, "there are too many steps");
  }
  reader.expect_end();
  // Where places ascend, no two chunks of them meet.
  bool ascend = true;
  for (uint32_t i = 1; i < items && part.num_chunks() > 1; ++i) {
    ascend &= part.places[i - 1] < part.places[i];
  }
  const auto add_chunk = [&](size_t c) { add_items(part, incoming, c); };
  if (ascend) {
    pool_.parallel_for(part.num_chunks(), add_chunk);
  } else {
    for (size_t c = 0; c < part.num_chunks(); ++c) {
      add_chunk(c);
    }
  }
  num_filled_ += items;
  for (auto& sums : part.sums) {
    Part::Sums before;
    for (Part::Sums& one : sums) {
      const Part::Sums own = std::exchange(one, before);
      before = {before.runs + own.runs, before.steps + own.steps,
                before.short_items + own.short_items};
    }
  }
}

// Checks a chunk of the items, and writes into the batch what is not data.
void BatchAssembly::add_items(Part& part, const Incoming& incoming, size_t number) {
  const Reader& reader = incoming.reader;
  const auto [begin, end] = part.chunk(number);
  int64_t* const ids = batch_->at<int64_t>(layout_.ids);
  float* const probabilities = batch_->at<float>(layout_.probabilities);
  uint8_t* const filled = filled_.data();
  const uint64_t batch_items = batch_->items;
  for (uint64_t i = begin; i < end; ++i) {
    const uint32_t place = part.places[i];
    reader.expect(place < batch_items && filled[place] == 0, "an item's place is taken");
    filled[place] = 1;
    ids[place] = incoming.ids[i];
    probabilities[place] = incoming.probabilities[i];
  }
  for (size_t w = 0; w < layout_.windows.size(); ++w) {
    const plan::BatchLayout::SharedWindow& shared = layout_.windows[w];
    const auto length = static_cast<uint32_t>(shared.window.length());
    const Values<ParcelPiece> pieces = part.pieces[w];
    int32_t* const lengths = batch_->at<int32_t>(shared.lengths);
    bool* const mask = layout_.packed ? nullptr : batch_->at<bool>(shared.mask);
    Part::Sums sums;
    for (uint64_t i = begin; i < end; ++i) {
      const ParcelPiece piece = pieces[i];
      reader.expect(piece.count <= length && piece.place <= length - piece.count,
                    "steps lie outside their window");
      const uint32_t place = part.places[i];
      lengths[place] = static_cast<int32_t>(piece.count);
      if (mask != nullptr) {
        plan::write_mask(length, piece.place, piece.count, mask + uint64_t{place} * length);
      }
      sums.steps += piece.count;
      sums.runs += piece.count > 0 ? 1 : 0;
      sums.short_items += piece.count < length ? 1 : 0;
    }
    if (!part.runs.empty()) {
      const Values<ParcelRun> runs = part.runs[w];
      const Values<uint32_t> begins = incoming.begins[w];
      const size_t stop = number + 1 < begins.size() ? begins[number + 1] : runs.size();
      size_t next = begins[number];
      reader.expect(next <= stop && stop <= runs.size(), "steps are missing");
      sums.runs = stop - next;
      for (uint64_t i = begin; i < end; ++i) {
        uint32_t left = pieces[i].count;
        while (left > 0) {
          reader.expect(next < stop, "steps are missing");
          const ParcelRun run = runs[next++];
          reader.expect(run.page < part.mapped_pages && run.row < pages_.page_steps &&
                            run.count - 1 < left && run.count <= pages_.page_steps - run.row,
                        "steps lie outside the pages");
          left -= run.count;
        }
      }
      reader.expect(next == stop, "there are too many steps");
    }
    part.sums[w][number] = sums;
  }
}

void BatchAssembly::finish() {
  if (num_filled_ != batch_->items) {
    throw base::TransportError(base::cat("[collect] the parcels of all ranks fill ", num_filled_,
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
    for (Part& part : parts_) {
      if (!part.pieces.empty()) {
        plan_part(w, part);
      }
    }
  }
  for (const plan::BatchLayout::DerivedOutput& derived : layout_.derived) {
    for (const Part& part : parts_) {
      if (!part.pieces.empty()) {
        fill_derived(derived, part);
      }
    }
  }
  for (uint32_t o = 0; o < parts_.size(); ++o) {
    batch_->bytes += bytes(o);
  }
}

void BatchAssembly::fill_derived(const plan::BatchLayout::DerivedOutput& derived,
                                 const Part& part) {
  const plan::BatchLayout::SharedWindow& shared = layout_.windows[derived.window];
  const plan::Derived kind = derived.output.derived;
  const auto length = static_cast<uint32_t>(shared.window.length());
  const uint64_t row_bytes = base::dtype_bytes(plan::derived_dtype(kind));
  const auto* const begins = batch_->at<int32_t>(shared.cu_seqlens);
  std::byte* const data = batch_->block.get() + derived.data;
  pool_.parallel_for(part.num_chunks(), [&](size_t c) {
    const auto [begin, end] = part.chunk(c);
    for (uint64_t i = begin; i < end; ++i) {
      const uint32_t place = part.places[i];
      const ParcelPiece piece = part.pieces[derived.window][i];
      const auto standing = plan::Standing::unpack(part.standings[derived.window][i]);
      if (layout_.packed) {
        plan::write_derived(kind, standing, 0, piece.count, piece.count,
                            data + static_cast<uint64_t>(begins[place]) * row_bytes);
      } else {
        plan::write_derived(kind, standing, piece.place, piece.count, length,
                            data + uint64_t{place} * length * row_bytes);
      }
    }
  });
}

// Like Plan::runs, a part without items has no windows.
void BatchAssembly::plan_part(size_t window, Part& part) {
  const plan::BatchLayout::SharedWindow& shared = layout_.windows[window];
  const auto length = static_cast<uint32_t>(shared.window.length());
  const Values<ParcelPiece> pieces = part.pieces[window];
  const bool mapped = part.mapped_pages > 0;
  const int32_t* const begins = layout_.packed ? batch_->at<int32_t>(shared.cu_seqlens) : nullptr;
  const std::vector<Part::Sums>& sums = part.sums[window];
  part.plan.begin_window(sums.back().runs);
  plan::Run* const plan = part.plan.room();
  pool_.parallel_for(part.num_chunks(), [&](size_t c) {
    const auto [begin, end] = part.chunk(c);
    auto row = static_cast<uint32_t>(sums[c].steps);  // of the packed rows
    size_t next = sums[c].runs;                       // of the mapped runs
    plan::Run* out = plan + next;
    for (uint64_t i = begin; i < end; ++i) {
      const uint32_t place = part.places[i];
      const ParcelPiece piece = pieces[i];
      if (piece.count == 0) {
        continue;
      }
      uint32_t target =
          begins != nullptr ? static_cast<uint32_t>(begins[place]) : place * length + piece.place;
      if (!mapped) {
        *out++ = {0, row, piece.count, target};
        row += piece.count;
        continue;
      }
      for (uint32_t left = piece.count; left > 0;) {
        const ParcelRun run = part.runs[window][next++];
        *out++ = {run.page, run.row, run.count, target};
        target += run.count;
        left -= run.count;
      }
    }
  });
  part.plan.fill(sums.back().runs);
}

void BatchAssembly::plan_padding(size_t window) {
  const auto length = static_cast<uint32_t>(layout_.windows[window].window.length());
  uint64_t short_items = 0;
  for (const Part& part : parts_) {
    if (!part.pieces.empty()) {
      short_items += part.sums[window].back().short_items;
    }
  }
  padding_.begin_window(layout_.packed ? 0 : 2 * short_items);
  for (const Part& part : parts_) {
    for (size_t c = 0; c < part.num_chunks() && !layout_.packed; ++c) {
      const std::vector<Part::Sums>& sums = part.sums[window];
      if (sums[c].short_items == sums[c + 1].short_items) {
        continue;
      }
      const auto [begin, end] = part.chunk(c);
      for (uint64_t i = begin; i < end; ++i) {
        const ParcelPiece piece = part.pieces[window][i];
        if (piece.count == length) {
          continue;
        }
        plan::add_zeros(length, piece.place, piece.count, part.places[i] * length, padding_);
      }
    }
  }
}

const plan::Plan& BatchAssembly::plan(uint32_t owner) const { return parts_[owner].plan; }

plan::PackedRows BatchAssembly::packed(uint32_t owner) const {
  const Part& part = parts_[owner];
  if (part.mapped_pages > 0 || part.pieces.empty()) {
    return {};
  }
  std::vector<uint64_t> rows;
  rows.reserve(layout_.windows.size());
  for (size_t w = 0; w < layout_.windows.size(); ++w) {
    rows.push_back(part.steps(w));
  }
  return {layout_, pages_, std::move(rows)};
}

uint64_t BatchAssembly::bytes(uint32_t owner) const {
  const Part& part = parts_[owner];
  uint64_t sum = 0;
  for (size_t w = 0; w < layout_.windows.size(); ++w) {
    for (const size_t o : layout_.windows[w].outputs) {
      sum += part.steps(w) * pages_.step_bytes[layout_.outputs[o].column];
    }
  }
  return sum;
}

}  // namespace gear::group
