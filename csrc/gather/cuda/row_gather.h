#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gather/cuda/gather_rows.h"
#include "plan/batch.h"
#include "plan/cuda/device_plan.h"
#include "plan/packed_rows.h"
#include "store/page_layout.h"

namespace gear::gather {

/// Moves listed rows between pages, packed parcels and batch blocks: one launch for up to 32
/// outputs of several owners, with conversions, and zeros for the rows that are not there. Folds
/// are a launch each (fold_rows.h), from pages only, and of rows that a DevicePlan planned: a
/// loader over ranks asks for none (group_loader.h).
///
/// Every access is aligned whatever the width of a row: columns begin at multiples of 16, and a
/// vector is the largest power of two up to 16 bytes that divides the row.
///
/// Launches go to the stream that is given, on the current device, with at most `most_blocks`
/// thread blocks each. No allocation, no synchronisation; may be captured into a graph.
class RowGather {
 public:
  /// `form` of the lists of rows in pages: kDelivered for those of DevicePlan, kOwned where their
  /// slots name owners, kAddressed for those of AddressOrder, kListed for any other.
  RowGather(std::shared_ptr<const plan::BatchLayout> layout, const store::PageLayout& pages,
            RowForm form);

  /// Rows of one owner.
  struct Part {
    const std::byte* source;                 ///< page 0, or the packed rows; aligned to 64
    std::span<const plan::RowList> lists;    ///< by window
    const plan::PackedRows* rows = nullptr;  ///< of packed rows only: how they lie
    /// By window, in the order of delivery: what kAddressed lists were made from. Folds read it.
    std::span<const plan::RowList> planned = {};
  };

  /// From pages into the data of `blocks`: of one, or where the form is kAddressed of up to
  /// kMostGatherBlocks, of which all but the last are full; their rows are numbered through.
  void gather(std::span<const Part> parts, std::span<std::byte* const> blocks, uint32_t most_blocks,
              cudaStream_t stream) const;
  /// The same of rows of several owners in one list a window, kOwned or kAddressed: page 0 of owner
  /// slot >> slot_bits is sources[that], at most kMostSources; the slot is what is below.
  void gather_owned(std::span<const std::byte* const> sources, uint32_t slot_bits,
                    std::span<const plan::RowList> lists, std::byte* block, const ReadMark& mark,
                    uint32_t most_blocks, cudaStream_t stream) const;
  /// From packed rows into the data of `block`.
  void unpack(std::span<const Part> parts, std::byte* block, uint32_t most_blocks,
              cudaStream_t stream) const;
  /// From pages to packed rows as they are stored; those of part i from out[i] on, all in one
  /// buffer that begins with out[0].
  void pack(std::span<const Part> parts, std::span<std::byte* const> out, uint32_t most_blocks,
            cudaStream_t stream) const;

 private:
  class Launch;

  void fold(const Part& part, std::span<std::byte* const> blocks, uint32_t most_blocks,
            cudaStream_t stream) const;

  std::shared_ptr<const plan::BatchLayout> layout_;
  uint64_t page_bytes_;
  uint32_t page_steps_;
  std::vector<uint64_t> column_offset_;  // by output
  RowForm form_;
  std::vector<RowMove> moves_;         // by output, from pages into blocks
  std::vector<RowMove> unpack_moves_;  // by output, from packed rows
  std::vector<RowMove> pack_moves_;    // by output, without conversion
  std::vector<bool> shared_;           // by output: an earlier one packs its rows
  std::vector<size_t> moved_;          // outputs, all but
  std::vector<size_t> folded_;         // those that are folded
};

}  // namespace gear::gather
