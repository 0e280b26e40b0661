#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gather/cuda/gather_rows.h"
#include "plan/batch.h"
#include "plan/packed_rows.h"
#include "store/page_layout.h"

namespace gear::gather {

/// Rows of one window that a kernel moves: entry i from slots[i] to row targets[i]. In memory that
/// the GPU reads.
struct RowList {
  const uint32_t* slots = nullptr;
  const uint32_t* targets = nullptr;
  uint32_t count = 0;
};

/// Moves listed rows between pages, packed parcels and batch blocks; several sources in one launch.
/// Launches go to the stream that is given, on the current device; no allocation in the steady
/// state, no synchronisation.
class ListGather {
 public:
  /// `form` of the lists of rows in pages: kListed, or kAddressed for those that ListOrder sorted.
  ListGather(std::shared_ptr<const plan::BatchLayout> layout, const store::PageLayout& pages,
             RowForm form);

  /// Rows of one owner; `lists` by window.
  struct Part {
    const std::byte* source;  ///< page 0, or the packed rows
    std::span<const RowList> lists;
    const plan::PackedRows* rows = nullptr;  ///< of packed rows only: how they lie
  };

  /// From pages into the data of `block`; slot kNone: zeros. Conversions included.
  void gather(std::span<const Part> parts, std::byte* block, uint32_t most_blocks,
              cudaStream_t stream) const;
  /// From packed rows, likewise.
  void unpack(std::span<const Part> parts, std::byte* block, uint32_t most_blocks,
              cudaStream_t stream) const;
  /// From pages to packed rows as they are stored; those of part i from out[i] on, all in one
  /// buffer that begins with out[0].
  void pack(std::span<const Part> parts, std::span<std::byte* const> out, uint32_t most_blocks,
            cudaStream_t stream) const;

 private:
  class Launch;

  std::shared_ptr<const plan::BatchLayout> layout_;
  uint64_t page_bytes_;
  uint32_t page_steps_;
  std::vector<uint64_t> column_offset_;  ///< by output
  RowForm form_;
  std::vector<RowMove> moves_;         ///< by output, from pages into a block
  std::vector<RowMove> unpack_moves_;  ///< by output, from packed rows
  std::vector<RowMove> pack_moves_;    ///< by output, without conversion
  std::vector<bool> shared_;           ///< by output: an earlier one packs its rows
};

}  // namespace gear::gather
