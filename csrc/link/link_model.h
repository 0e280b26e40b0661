#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "plan/batch.h"
#include "store/page_layout.h"

namespace gear::link {

/// What was measured: Path::kZeroCopy in two orders, and Path::kStaged.
enum class LinkPath : uint8_t {
  kZeroCopy,  ///< the GPU reads the rows by pointer, in delivery order
  kOrdered,   ///< the same in address order (AddressOrder), the sort included
  kStaged,    ///< host threads gather into a pinned block, the copy engine moves it
};
inline constexpr size_t kNumLinkPaths = 3;

/// "zero_copy", "zero_copy_ordered", "staged".
std::string_view link_path_name(LinkPath path);

/// Speed of the three paths from pinned memory of this machine to one GPU.
class LinkModel {
 public:
  /// One measurement.
  struct Sample {
    uint64_t run_bytes;                          ///< neighbouring bytes in the store
    uint64_t batch_bytes;                        ///< of one batch
    std::array<double, kNumLinkPaths> gb_per_s;  ///< delivered, by LinkPath; above 0

    bool operator==(const Sample&) const = default;
  };

  /// Seconds of the calling thread for each item of a staged batch: the host draws and plans, one
  /// item after the other, while others gather.
  struct HostCost {
    double select_s = 0.0;
    double plan_s = 0.0;  ///< for each window

    bool operator==(const HostCost&) const = default;
  };

  /// Throws InvalidArgument unless `samples` has every combination of the run sizes and batch sizes
  /// that occur in it, once.
  LinkModel(std::vector<Sample> samples, HostCost host);

  /// The model of this machine and `device`: what the process had before, else from the cache
  /// (links-<GPU>-<host>.txt in base::cache_folder()), else measured in less than 3 s, logged at
  /// info and kept there. A cache that cannot be read or written is logged and done without. Thread
  /// safe.
  static LinkModel of_device(int device);
  /// Only what the cache holds.
  static std::optional<LinkModel> cached(int device);
  /// Measures whatever is known, and keeps that. Throws OutOfMemory.
  static LinkModel measure_again(int device);
  /// One GPU behind PCIe 5 with 16 lanes, 14 host threads (docs/performance.md).
  static LinkModel typical();

  /// The faster path for a batch of this layout: Path::kZeroCopy or Path::kStaged.
  plan::Path choose(const plan::BatchLayout& layout, const store::PageLayout& pages,
                    uint64_t num_pages) const;
  /// Whether a batch that goes by zero-copy is faster with its rows in address order. Never where
  /// the pages are fewer than a GPU translates the addresses of anyway.
  bool order_pays(const plan::BatchLayout& layout, const store::PageLayout& pages,
                  uint64_t num_pages) const;
  /// Seconds between two full batches that come by a path.
  double seconds(LinkPath path, const plan::BatchLayout& layout,
                 const store::PageLayout& pages) const;

  /// Of gather and copy: between the measured points by interpolation of the logarithms. Below the
  /// smallest, in proportion to the bytes: there the time is one for each run, and one for each
  /// batch. Above the largest, as the largest.
  double gb_per_s(LinkPath path, uint64_t run_bytes, uint64_t batch_bytes) const;
  /// The smallest measured batch from which on zero-copy, in the faster order, beats staged for
  /// runs of these bytes; 0: always, UINT64_MAX: never.
  uint64_t crossover_bytes(uint64_t run_bytes) const;

  const std::vector<Sample>& samples() const { return samples_; }
  const HostCost& host() const { return host_; }

  /// As stored: a line with the version, one with the host's cost, one a sample, one with the
  /// checksum. parse() throws CorruptData for anything else.
  std::string text() const;
  static LinkModel parse(std::string_view text);

 private:
  double measured(LinkPath path, size_t run, size_t batch) const;

  HostCost host_;
  std::vector<Sample> samples_;        ///< by run_bytes, then batch_bytes
  std::vector<uint64_t> run_bytes_;    ///< ascending
  std::vector<uint64_t> batch_bytes_;  ///< ascending
};

/// Measures; the CUDA half of LinkModel. Takes 4 GiB of pinned memory meanwhile, or what there is,
/// and some 200 MiB of the GPU's.
LinkModel measure_link(int device);

/// Measures the host's part, over an index too large for its caches.
LinkModel::HostCost measure_host_cost();

}  // namespace gear::link
