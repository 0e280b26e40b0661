#pragma once

#include <cstddef>
#include <cstdint>

#include "base/threads/thread_pool.h"
#include "plan/packed_rows.h"
#include "plan/plan.h"
#include "store/page_layout.h"

namespace gear::gather {

/// Batches of as many bytes are split over the pool. A smaller one costs the threads that draw and
/// plan beside it more than it gains.
constexpr uint64_t kSplitBytes = 1 << 20;

/// Moves what the plan says from the pages at `source` into the data of `batch`; where it is split,
/// the calling thread takes part. Rows of a fold are added up as fold.h says: to their item's row,
/// in the order of its steps, so the runs of an item follow each other in the plan, and an item
/// whose first row no run has is left alone.
void gather_cpu(const std::byte* source, const store::PageLayout& pages, const plan::Plan& plan,
                const plan::Batch& batch, base::ThreadPool& pool);

/// The two ends of a packed parcel (parcel_writer.h). Moves the rows that `plan` names out of the
/// pages at `source` to where `rows` says they lie packed, from `out` on; as they are stored, no
/// conversion.
void pack_cpu(const std::byte* source, const store::PageLayout& pages,
              const plan::BatchLayout& layout, const plan::Plan& plan, const plan::PackedRows& rows,
              std::byte* out, base::ThreadPool& pool);
/// Moves the packed rows at `source` into the data of `batch`, as gather_cpu does those of pages.
void unpack_cpu(const std::byte* source, const plan::PackedRows& rows,
                const store::PageLayout& pages, const plan::Plan& plan, const plan::Batch& batch,
                base::ThreadPool& pool);

}  // namespace gear::gather
