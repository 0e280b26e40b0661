#pragma once

#include <cstdint>
#include <vector>

#include "base/threads/thread_pool.h"
#include "plan/packed_rows.h"
#include "plan/plan.h"
#include "transport/one_sided/remote_memory.h"

namespace gear::group {

/// The rows of one batch that lie in other ranks' pages, read one-sided:
///
///   begin() ── add(owner, plan of its pages), for every such owner ── finish()
///
///     owner's pages ── one read for each run of a column ──► landing memory, packed ──► batch
///
/// Its memory is kept between batches.
class RemoteRows {
 public:
  /// All three are the caller's and outlive it.
  RemoteRows(const plan::BatchLayout& layout, const store::PageLayout& pages,
             transport::RemoteReader& reader)
      : layout_(layout), pages_(pages), reader_(reader) {}

  void begin();
  /// `plan`: runs in the pages of `owner`, with their rows of the batch.
  void add(uint32_t owner, const plan::Plan& plan);
  /// Reads, and moves what came into the data of `batch`. Throws TransportError.
  void finish(const plan::Batch& batch, base::ThreadPool& pool);

 private:
  struct Packed {
    plan::PackedRows rows;
    plan::Plan plan;  ///< page 0, row: of the window
    uint64_t begin;   ///< in the landing memory
  };

  const plan::BatchLayout& layout_;
  const store::PageLayout& pages_;
  transport::RemoteReader& reader_;
  std::vector<Packed> packed_;
  size_t num_packed_ = 0;
  std::vector<transport::RemoteRead> reads_;
  uint64_t bytes_ = 0;
};

}  // namespace gear::group
