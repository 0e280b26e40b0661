#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cuda/cuda.h"
#include "base/numbers/divider.h"
#include "plan/cast.h"

namespace gear::gather {

// The kernel that every gather on a GPU is: rows named by lists of slots, moved in one launch from
// up to kMovesPerLaunch columns to as many places. What is here describes a launch.

constexpr uint32_t kMovesPerLaunch = 32;  ///< keeps the parameters of a kernel below 4 KiB
constexpr size_t kMostGatherBlocks = 8;
constexpr size_t kMostSources = 16;
/// PCIe 5 is full with 130 KB in flight (51 GB/s times 2.5 us): few blocks of four vectors a thread
/// do it, and leave the multiprocessors to the training step.
constexpr uint32_t kBlocksFromHost = 64;

/// How a list of rows is walked.
enum class RowForm : uint8_t {
  kDelivered,  ///< entry i is row i of the batch
  kOwned,      ///< the same; the slots name their owners too, see RowJob::sources
  kAddressed,  ///< sorted by address; entry i is row order[i] of up to kMostGatherBlocks batches
  kListed,     ///< entry i is row order[i] of one batch, in any order
};

/// The rows of one column. A tile is the rows or the part of a row that a thread block moves at a
/// time:
///
///   narrow rows   [row 0 | row 1 | ... | row tile_rows - 1]      vectors of one tile
///   wide rows     [part 0 of row 0][part 1 of row 0] ...         row_parts to a row
struct RowMove {
  const uint32_t* slots;
  const uint32_t* order;    ///< null: kDelivered
  const int32_t* filled;    ///< kDelivered, packed: how many rows there are; null: num_rows
  const std::byte* source;  ///< the column's first row in page 0; with sources, from there on
  uint64_t data;            ///< in a block
  uint32_t num_rows;
  uint32_t first_tile;
  uint32_t row_vectors;
  uint32_t tile_rows;        ///< 0: wide rows
  uint32_t part_vectors;     ///< of a wide row
  base::Divider divider;     ///< narrow: by row_vectors; wide: by row_parts
  base::Divider block_rows;  ///< kAddressed: of a full block
  float scale;
  plan::Cast cast;
  uint8_t elements;  ///< of a vector; of a plain move, bytes
};

/// A word that the last launch of a gather sets when all its rows were read; null: none.
struct ReadMark {
  uint64_t* word = nullptr;  ///< that the GPU writes; of pinned memory, say
  uint64_t value = 0;
  unsigned* blocks_done = nullptr;  ///< memory of the GPU; 0 before and after
};

struct RowJob {
  uint64_t page_bytes;
  base::Divider page_steps;
  std::byte* blocks[kMostGatherBlocks];  ///< all but the first: kAddressed
  /// kOwned, kAddressed: page 0 of owner slot >> slot_bits, added to the move's source; the slot is
  /// what is below. One owner: 0, and 32 bits.
  const std::byte* sources[kMostSources];
  uint32_t slot_bits;
  ReadMark mark;  ///< of the same forms
  uint32_t num_moves;
  uint32_t num_tiles;
  bool padded;  ///< rows that are not there are zeros
  RowMove moves[kMovesPerLaunch];
};
static_assert(sizeof(RowJob) <= 4096, "more needs a newer compiler and driver");

/// A move of rows of `step_bytes` stored bytes, without source, place and lists.
RowMove describe_move(uint64_t step_bytes, plan::Cast cast, float scale, RowForm form);

/// Lays out the tiles of the job's moves and launches it on `stream`, with at most `most_blocks`
/// thread blocks; nothing where there are no rows. The device is current. No allocation, no
/// synchronisation; may be captured into a graph.
void launch_rows(RowForm form, RowJob& job, uint32_t most_blocks, cudaStream_t stream);

}  // namespace gear::gather
