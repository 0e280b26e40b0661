#include <cstring>

#include "base/errors.h"
#include "collect/parcel.h"
#include "collect/parcel_format.h"
#include "collect/window_runs.h"

namespace gear::collect {
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
    if (count > bytes_.size() / sizeof(T)) fail("it ends too early");
    const Values<T> values(bytes_.first(count * sizeof(T)));
    bytes_ = bytes_.subspan(count * sizeof(T));
    return values;
  }

  void expect(bool sound, const char* what) const {
    if (!sound) [[unlikely]]
      fail(what);
  }
  void expect_end() const { expect(bytes_.empty(), "bytes follow its end"); }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw base::TransportError(
        base::cat("[collect] the parcel of rank ", owner_, " is not sound: ", what,
                  "; ranks of one group must run the same build with the same loader"));
  }

  std::span<const std::byte> bytes_;
  uint32_t owner_;
};

}  // namespace

struct BatchAssembly::Part {
  uint64_t mapped_pages = 0;
  Values<uint32_t> places;
  std::vector<Values<ParcelPiece>> pieces;  // by window
  std::vector<Values<ParcelRun>> runs;      // by window; none where packed
  std::vector<uint64_t> steps;              // by window
  Plan plan;

  void forget() {
    places = {};
    pieces.clear();
    runs.clear();
    steps.clear();
    plan.reset();
  }
};

BatchAssembly::BatchAssembly(const BatchLayout& layout, const store::PageLayout& pages,
                             std::span<const uint64_t> mapped_pages)
    : layout_(layout), pages_(pages), parts_(mapped_pages.size()) {
  for (size_t o = 0; o < parts_.size(); ++o) parts_[o].mapped_pages = mapped_pages[o];
}

BatchAssembly::~BatchAssembly() = default;

void BatchAssembly::begin(Batch& batch, uint64_t items) {
  GEAR_CHECK(items <= layout_.batch_size);
  batch_ = &batch;
  batch.items = items;
  batch.rows.clear();
  batch.bytes = 0;
  filled_.assign(items, false);
  num_filled_ = 0;
  for (Part& part : parts_) part.forget();
}

void BatchAssembly::add(uint32_t owner, std::span<const std::byte> parcel) {
  Part& part = parts_[owner];
  GEAR_CHECK(part.pieces.empty());
  if (parcel.empty()) return;
  Reader reader(parcel, owner);
  const ParcelHeader header = reader.take<ParcelHeader>(1)[0];
  reader.expect(header.items <= batch_->items - num_filled_, "it has more items than the batch");
  reader.expect(header.mapped == (part.mapped_pages > 0 ? 1U : 0U),
                "its rows are not where they were to be");
  const uint32_t items = header.items;
  const auto ids = reader.take<int64_t>(items);
  const auto probabilities = reader.take<float>(items);
  part.places = reader.take<uint32_t>(items);
  for (uint32_t i = 0; i < items; ++i) {
    const uint32_t place = part.places[i];
    reader.expect(place < batch_->items && !filled_[place], "an item's place is taken");
    filled_[place] = true;
    batch_->at<int64_t>(layout_.ids)[place] = ids[i];
    batch_->at<float>(layout_.probabilities)[place] = probabilities[i];
  }
  num_filled_ += items;
  for (const BatchLayout::SharedWindow& shared : layout_.windows) {
    const auto length = static_cast<uint32_t>(shared.window.length());
    const auto pieces = reader.take<ParcelPiece>(items);
    uint64_t steps = 0;
    for (uint32_t i = 0; i < items; ++i) {
      const ParcelPiece piece = pieces[i];
      reader.expect(piece.count <= length && piece.place <= length - piece.count,
                    "steps lie outside their window");
      steps += piece.count;
      const uint32_t place = part.places[i];
      batch_->at<int32_t>(shared.lengths)[place] = static_cast<int32_t>(piece.count);
      if (layout_.packed) continue;
      write_mask(length, piece.place, piece.count,
                 batch_->at<bool>(shared.mask) + uint64_t{place} * length);
    }
    part.pieces.push_back(pieces);
    part.steps.push_back(steps);
  }
  for (size_t w = 0; w < layout_.windows.size() && header.mapped == 1; ++w) {
    const auto runs = reader.take<ParcelRun>(reader.take<uint32_t>(1)[0]);
    size_t next = 0;
    for (uint32_t i = 0; i < items; ++i) {
      uint32_t left = part.pieces[w][i].count;
      while (left > 0) {
        reader.expect(next < runs.size(), "steps are missing");
        const ParcelRun run = runs[next++];
        reader.expect(run.page < part.mapped_pages && run.row < pages_.page_steps &&
                          run.count - 1 < left && run.count <= pages_.page_steps - run.row,
                      "steps lie outside the pages");
        left -= run.count;
      }
    }
    reader.expect(next == runs.size(), "there are too many steps");
    part.runs.push_back(runs);
  }
  reader.expect_end();
}

void BatchAssembly::finish() {
  if (num_filled_ != batch_->items) {
    throw base::TransportError(base::cat("[collect] the parcels of all ranks have ", num_filled_,
                                         " items of a batch of ", batch_->items,
                                         ": ranks of one group must make the same calls"));
  }
  padding_.reset();
  for (size_t w = 0; w < layout_.windows.size(); ++w) {
    const BatchLayout::SharedWindow& shared = layout_.windows[w];
    uint64_t rows = batch_->items * shared.window.length();
    if (layout_.packed) {
      const auto* lengths = batch_->at<int32_t>(shared.lengths);
      auto* cu_seqlens = batch_->at<int32_t>(shared.cu_seqlens);
      cu_seqlens[0] = 0;
      for (uint64_t i = 0; i < batch_->items; ++i) cu_seqlens[i + 1] = cu_seqlens[i] + lengths[i];
      rows = static_cast<uint64_t>(cu_seqlens[batch_->items]);
    }
    batch_->rows.push_back(rows);
    plan_padding(w);
    for (Part& part : parts_) {
      if (!part.pieces.empty()) plan_part(w, part);
    }
  }
  for (uint32_t o = 0; o < parts_.size(); ++o) batch_->bytes += bytes(o);
}

// Like Plan::runs, a part without items has no windows.
void BatchAssembly::plan_part(size_t window, Part& part) {
  const BatchLayout::SharedWindow& shared = layout_.windows[window];
  const auto length = static_cast<uint32_t>(shared.window.length());
  const Values<ParcelPiece> pieces = part.pieces[window];
  const bool mapped = part.mapped_pages > 0;
  part.plan.begin_window(mapped ? part.runs[window].size() : pieces.size());
  uint32_t row = 0;  // of the packed rows
  size_t next = 0;   // of the runs
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint32_t place = part.places[i];
    const ParcelPiece piece = pieces[i];
    if (piece.count == 0) continue;
    uint32_t target = layout_.packed
                          ? static_cast<uint32_t>(batch_->at<int32_t>(shared.cu_seqlens)[place])
                          : place * length + piece.place;
    if (!mapped) {
      part.plan.add({0, row, piece.count, target});
      row += piece.count;
      continue;
    }
    for (uint32_t left = piece.count; left > 0;) {
      const ParcelRun run = part.runs[window][next++];
      part.plan.add({run.page, run.row, run.count, target});
      target += run.count;
      left -= run.count;
    }
  }
}

void BatchAssembly::plan_padding(size_t window) {
  const auto length = static_cast<uint32_t>(layout_.windows[window].window.length());
  padding_.begin_window(layout_.packed ? 0 : 2 * batch_->items);
  for (const Part& part : parts_) {
    for (size_t i = 0; i < part.places.size() && !layout_.packed; ++i) {
      const ParcelPiece piece = part.pieces[window][i];
      if (piece.count == length) continue;
      add_zeros(length, piece.place, piece.count, part.places[i] * length, padding_);
    }
  }
}

const Plan& BatchAssembly::plan(uint32_t owner) const { return parts_[owner].plan; }

PackedRows BatchAssembly::packed(uint32_t owner) const {
  const Part& part = parts_[owner];
  if (part.mapped_pages > 0 || part.pieces.empty()) return {};
  return {layout_, pages_, part.steps};
}

uint64_t BatchAssembly::bytes(uint32_t owner) const {
  const Part& part = parts_[owner];
  uint64_t sum = 0;
  for (size_t w = 0; w < part.steps.size(); ++w) {
    for (const size_t o : layout_.windows[w].outputs) {
      sum += part.steps[w] * pages_.step_bytes[layout_.outputs[o].column];
    }
  }
  return sum;
}

}  // namespace gear::collect
