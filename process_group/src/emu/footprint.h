#pragma once

#include <cstdint>
#include <vector>

namespace gear::emu {

/// What NCCL's kernel takes of a GPU from so many bytes on, and so what a hold takes: then the
/// kernels beside it lose as much. By default one warp, which takes nothing of note.
struct Footprint {
  uint64_t bytes = 0;
  unsigned blocks = 1;
  unsigned threads = 32;
  unsigned shared = 0;  ///< bytes of each block
};

/// The last of them that begins at or below `bytes`; the first above all. The default of none.
Footprint footprint_of(const std::vector<Footprint>& footprints, uint64_t bytes);

}  // namespace gear::emu
