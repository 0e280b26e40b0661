#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/threads/thread_pool.h"
#include "plan/packed_rows.h"
#include "plan/plan.h"

namespace gear::group {

/// What an owner tells a consumer of the items of its batch that lie in the owner's shard: ids,
/// probabilities, places in the batch, and for each window how many steps of each item there are,
/// where they go, and from where they are to be read:
///
///   mapped   the runs (page, row, count) in the owner's pages, which the consumer reads by pointer
///   packed   nothing: the rows themselves are sent, as PackedRows says, item by item
///
/// A parcel without items has no bytes. The bytes are for processes of one build on machines of one
/// byte order, not for storage.
class ParcelWriter {
 public:
  /// Large parcels are written, and read, in parts of so many items, which the pool shares.
  static constexpr uint32_t kPartItems = 4096;

  ParcelWriter(const plan::BatchLayout& layout, const store::PageLayout& pages,
               uint32_t part_items = kPartItems);

  /// Items `which` (positions in `selection`), item which[i] going to places[i] of the consumer's
  /// batch. Under the shard's lock. Replaces `bytes`. Unless `mapped`, fills `rows`, whose runs
  /// pack the rows (Run::target: row of the window), and returns how they lie then; otherwise, and
  /// without items, `rows` is empty and none are packed.
  plan::PackedRows write(const store::Index& index, const select::Selection& selection,
                         std::span<const uint32_t> which, std::span<const uint32_t> places,
                         bool mapped, std::vector<std::byte>& bytes, plan::Plan& rows) const;

 private:
  const plan::BatchLayout& layout_;
  const store::PageLayout& pages_;
  uint32_t part_items_;
  base::ThreadPool& pool_;
};

/// The other end. A batch is put together from one parcel of every owner, the own one included:
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
  /// `parcel` stays where it is until finish(). Throws TransportError for bytes that contradict
  /// themselves or the batch: what is read by their word lies inside the owner's pages or rows.
  void add(uint32_t owner, std::span<const std::byte> parcel);
  /// Throws TransportError unless every item came; none can come twice.
  void finish();

  const plan::Plan& plan(uint32_t owner) const;
  const plan::Plan& padding() const { return padding_; }
  /// How the packed rows of this owner lie; none where they are mapped.
  plan::PackedRows packed(uint32_t owner) const;
  /// Bytes of rows that come from this owner.
  uint64_t bytes(uint32_t owner) const;

 private:
  struct Part;
  struct Incoming;

  void add_items(Part& part, const Incoming& incoming, size_t number);
  void plan_part(size_t window, Part& part);
  void fill_derived(const plan::BatchLayout::DerivedOutput& derived, const Part& part);
  void plan_padding(size_t window);

  const plan::BatchLayout& layout_;
  const store::PageLayout& pages_;
  plan::Batch* batch_ = nullptr;
  base::ThreadPool& pool_;
  std::vector<Part> parts_;      ///< by owner
  std::vector<uint8_t> filled_;  ///< by item: 0 or 1
  uint64_t num_filled_ = 0;
  plan::Plan padding_;
};

}  // namespace gear::group
