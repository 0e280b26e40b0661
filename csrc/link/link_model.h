#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "plan/batch.h"
#include "plan/path.h"
#include "store/page_layout.h"

namespace gear::link {

/// How fast rows in pinned memory of this machine come to one GPU: three measured numbers, all
/// above 0. Seconds of a batch follow from them:
///
///     zero-copy   max(bytes / bytes_per_s, places / places_per_s)
///                   in the order drawn: a place for each run that is not among those translated
///                   in address order: each place once, and the sort of the rows before it
///     staged      max(bytes / staged_bytes_per_s, items * what one thread draws and plans one in)
///
/// A run is what neighbours in the store: the steps of a window in one column of a page. A place is
/// 64 KiB of host memory, whose address a GPU translates as one. It remembers 256 MiB of them:
/// pages that are no more cost no places, and no order of them pays.
struct LinkModel {
  double bytes_per_s;         ///< the GPU reads rows by pointer, so large that bytes bind
  double places_per_s;        ///< ... so small that places bind
  double staged_bytes_per_s;  ///< host threads gather into a pinned block, the copy engine moves it

  /// One H200 behind PCIe 5 with 16 lanes, 14 host threads (docs/performance.md): what stands for a
  /// link that there is no memory to measure.
  static LinkModel typical() { return {51e9, 40e6, 43e9}; }

  /// The faster path for a batch of this layout: Path::kZeroCopy or Path::kStaged.
  plan::Path choose(const plan::BatchLayout& layout, const store::PageLayout& pages,
                    uint64_t num_pages) const;

  /// Whether a batch that goes by zero-copy is faster with its rows in address order.
  bool order_pays(const plan::BatchLayout& layout, const store::PageLayout& pages,
                  uint64_t num_pages) const;

  /// Batches that a GPU gathers in one pass in address order, when `prefetch` of them are in
  /// flight: between 1 and `most`.
  ///
  ///   prefetch / 2   the other half is there by the time it is needed
  ///   prefetch       where such a pass takes hardly longer than one over half as many, because
  ///                  what bounds it is the number of places it visits: the next pass then begins
  ///                  when the last batch but one is delivered
  size_t pass_size(const plan::BatchLayout& layout, const store::PageLayout& pages,
                   uint64_t num_pages, size_t prefetch, size_t most) const;

  /// Of `runs` anywhere in `pool_bytes` of host memory, those that a GPU must translate an address
  /// for, in the order drawn.
  static double untranslated(double runs, uint64_t pool_bytes);

  /// The line that a file keeps: `link`, which names what was measured, and the numbers.
  std::string text(std::string_view link) const;
  /// Throws CorruptData for anything but such a line of that link.
  static LinkModel parse(std::string_view text, std::string_view link);
};

}  // namespace gear::link
