#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collect/plan.h"

namespace gear::collect {

// What an owner tells a consumer of the items of its batch that lie in the owner's shard: ids,
// probabilities, places in the batch, and for each window how many steps of each item there are,
// where they go, and from where they are to be read:
//
//   mapped   the runs (page, row, count) in the owner's pages, which the consumer reads by pointer
//   packed   nothing: the rows themselves follow, window by window, output by output, item by item
//
// The bytes are for processes of one build on machines of one byte order, not for storage.
class ParcelWriter {
 public:
  explicit ParcelWriter(const BatchLayout& layout, const store::PageLayout& pages);

  // Items `which` (ascending positions in `selection`), item which[i] going to places[i] of the
  // consumer's batch. Under the shard's lock. `mapped`: as above. Fills `bytes` (replaced), and,
  // unless mapped, `rows`: the plan that packs the rows (Run::target: row of the window), whose
  // data lie as packed_layout() says.
  void write(const store::Index& index, const select::Selection& selection,
             std::span<const uint32_t> which, std::span<const uint32_t> places, bool mapped,
             std::vector<std::byte>& bytes, Plan& rows);

 private:
  const BatchLayout* layout_;
  const store::PageLayout* pages_;
};

// Where the rows of a packed parcel lie: outputs of a window that show the same column share its
// rows. Offsets are multiples of 16; rows are as they are stored, conversions are the consumer's.
struct PackedRows {
  struct Window {
    uint64_t rows = 0;
    std::vector<uint64_t> column_offset;  // by column of the schema; kAbsent: not in this window
  };
  static constexpr uint64_t kAbsent = UINT64_MAX;
  std::vector<Window> windows;
  uint64_t bytes = 0;

  // `rows`: by window.
  PackedRows(const BatchLayout& layout, const store::PageLayout& pages,
             std::span<const uint64_t> rows);
};

// The other end. A batch is put together from one parcel of every owner, the own one included:
//
//   begin(batch) ── add(parcel of owner 0) ── add(1) ... ── finish()
//
// begin() and add() fill in ids, probabilities, lengths, masks; finish() cu_seqlens, batch.rows and
// batch.bytes, and makes the plans: plan(o) copies the rows of owner o's parcel, from its pages or
// from its packed rows (page 0, row: row of the window), padding() writes the zeros.
class BatchAssembly {
 public:
  BatchAssembly(const BatchLayout& layout, const store::PageLayout& pages, uint32_t num_owners);
  ~BatchAssembly();

  void begin(Batch& batch, uint64_t items);
  // `parcel` stays where it is until finish(). Throws TransportError for bytes that contradict
  // themselves or the batch.
  void add(uint32_t owner, std::span<const std::byte> parcel);
  // Throws TransportError unless every item came exactly once.
  void finish();

  const Plan& plan(uint32_t owner) const;
  const Plan& padding() const;
  // Rows by window that owner's packed parcel has; what PackedRows takes.
  std::span<const uint64_t> packed_rows(uint32_t owner) const;
  // Bytes of rows that come from this owner.
  uint64_t bytes(uint32_t owner) const;
 private:
  struct Part;
  const BatchLayout* layout_;
  const store::PageLayout* pages_;
  Batch* batch_ = nullptr;
  std::vector<Part> parts_;
  Plan padding_;
};

}  // namespace gear::collect
