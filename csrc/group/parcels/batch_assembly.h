#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/threads/thread_pool.h"
#include "plan/packed_rows.h"
#include "plan/plan.h"

namespace gear::group {

/// The other end of ParcelWriter. A batch is put together from one parcel of every owner that has
/// any of its items, the own one included:
///
///   begin(batch) ── add(parcel of owner 0) ── add(1) ... ── finish()
///
/// begin() and add() fill in ids, probabilities, lengths, masks; finish() cu_seqlens, derived
/// outputs, batch.rows and batch.bytes, and makes the plans: plan(o) copies the rows of owner o's
/// parcel, from its pages or from its packed rows (page 0, row: row of the window), padding()
/// writes the zeros. Importance weights are not filled in: see select::set_importance.
class BatchAssembly {
 public:
  /// `layout` and `pages` are the caller's. `mapped_pages`: by owner, how many of its pages can be
  /// read by pointer; 0 where its rows come packed.
  BatchAssembly(const plan::BatchLayout& layout, const store::PageLayout& pages,
                std::span<const uint64_t> mapped_pages);
  ~BatchAssembly();

  void begin(plan::Batch& batch, uint64_t items);
  /// `bytes` stay where they are until finish(), at a multiple of 8. Throws TransportError for ones
  /// that contradict themselves or the batch: what is read by their word lies inside the owner's
  /// pages or rows.
  void add(uint32_t owner, std::span<const std::byte> bytes);
  /// Throws TransportError unless every item came; none can come twice.
  void finish();

  const plan::Plan& plan(uint32_t owner) const;
  const plan::Plan& padding() const { return padding_; }
  /// How the packed rows of this owner lie; none where they are mapped.
  const plan::PackedRows& packed(uint32_t owner) const;
  /// That come from this owner.
  uint64_t items(uint32_t owner) const;
  /// ParcelHeader::rows_at of its parcel, which nobody has checked but for kRowsBehind; then
  /// rows_behind(), as long as the parcel's bytes.
  uint64_t rows_at(uint32_t owner) const;
  std::span<const std::byte> rows_behind(uint32_t owner) const;
  /// Bytes of rows that come from this owner.
  uint64_t bytes(uint32_t owner) const;

 private:
  struct Opened;  ///< parcel

  void open(Opened& parcel, std::span<const std::byte> bytes);
  void put_items(const Opened& parcel, size_t part);
  void put_pieces(Opened& parcel, size_t window, size_t part);
  void check_runs(Opened& parcel, size_t window, size_t part) const;
  void plan_window(size_t window, Opened& parcel);
  void fill_derived(const plan::BatchLayout::DerivedOutput& derived, const Opened& parcel);
  void plan_padding(size_t window);

  const plan::BatchLayout& layout_;
  const store::PageLayout& pages_;
  plan::Batch* batch_ = nullptr;
  base::ThreadPool& pool_;
  std::vector<Opened> parcels_;  ///< by owner
  std::vector<uint8_t> filled_;  ///< by item: 0 or 1
  uint64_t num_filled_ = 0;
  plan::Plan padding_;
};

}  // namespace gear::group
