#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/batch.h"
#include "plan/path.h"
#include "store/page_layout.h"

namespace gear::link {

/// Speed of the ways from pinned memory of this machine to one GPU.
class LinkModel {
 public:
  /// Delivered, in GB/s; above 0.
  struct Speeds {
    double zero_copy;          ///< the GPU reads the rows by pointer, in delivery order
    double zero_copy_ordered;  ///< the same in address order (AddressOrder), the sort included
    double staged;  ///< host threads gather into a pinned block, the copy engine moves it
  };

  /// One measurement.
  struct Sample {
    uint64_t run_bytes;    ///< neighbouring bytes in the store
    uint64_t batch_bytes;  ///< of one batch
    Speeds gb_per_s;
  };

  /// Seconds of the calling thread for each item of a staged batch: the host draws and plans, one
  /// item after the other, while others gather.
  struct HostCost {
    double select_s = 0.0;
    double plan_s = 0.0;  ///< for each window
  };

  /// The pinned memory that rows are gathered from when a link is measured.
  static constexpr uint64_t kPoolBytes = uint64_t{4} << 30;

  /// `pool_bytes`: of what was measured. Throws InvalidArgument unless `samples` has every
  /// combination of the run sizes and batch sizes that occur in it, once.
  LinkModel(std::vector<Sample> samples, HostCost host, uint64_t pool_bytes = kPoolBytes);

  /// One H200 behind PCIe 5 with 16 lanes, 14 host threads (docs/performance.md): what stands for a
  /// link that there is no memory to measure.
  static LinkModel typical();

  /// The faster path for a batch of this layout: Path::kZeroCopy or Path::kStaged.
  plan::Path choose(const plan::BatchLayout& layout, const store::PageLayout& pages,
                    uint64_t num_pages) const;
  /// Whether a batch that goes by zero-copy is faster with its rows in address order. Never where
  /// the pages are fewer than a GPU translates the addresses of anyway.
  bool order_pays(const plan::BatchLayout& layout, const store::PageLayout& pages,
                  uint64_t num_pages) const;
  /// Seconds between two full batches that come by a path.
  double seconds(plan::Path path, bool ordered, const plan::BatchLayout& layout,
                 const store::PageLayout& pages) const;

  /// Of gather and copy: between the measured points by interpolation of the logarithms. Below the
  /// smallest, in proportion to the bytes: there the time is one for each run, and one for each
  /// batch. Above the largest, as the largest.
  double gb_per_s(plan::Path path, bool ordered, uint64_t run_bytes, uint64_t batch_bytes) const;
  /// What bounds a gather in address order, of rows however small: seconds that it costs to read
  /// from a further place of kPlaceBytes, and bytes a second.
  static constexpr double kPlaceBytes = 65536.0;
  double visit_s() const;
  double ordered_bytes_per_s() const;
  /// The smallest measured batch from which on zero-copy, in the faster order, beats staged for
  /// runs of these bytes; 0: always, UINT64_MAX: never.
  uint64_t crossover_bytes(uint64_t run_bytes) const;

  const std::vector<Sample>& samples() const { return samples_; }

  /// As stored: a line with the version, one with the host's cost, one with the pool's size, one a
  /// sample, one with the checksum. parse() throws CorruptData for anything else.
  std::string text() const;
  static LinkModel parse(std::string_view text);

 private:
  double measured(plan::Path path, bool ordered, size_t run, size_t batch) const;

  HostCost host_;
  uint64_t pool_bytes_;
  std::vector<Sample> samples_;        ///< by run_bytes, then batch_bytes
  std::vector<uint64_t> run_bytes_;    ///< ascending
  std::vector<uint64_t> batch_bytes_;  ///< ascending
};

}  // namespace gear::link
