#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "collect/batch.h"
#include "store/page_layout.h"

namespace gear::collect {

// What was measured: Path::kZeroCopy in two orders, and Path::kStaged.
enum class LinkPath : uint8_t {
  kZeroCopy,  // the GPU reads the rows by pointer, in delivery order
  kOrdered,   // the same in address order (AddressOrder)
  kStaged,    // host threads gather into a pinned block, the copy engine moves it
};

// "zero_copy", "zero_copy_ordered", "staged".
std::string_view link_path_name(LinkPath path);

// Speed of the three paths between this machine and one GPU, as measured once and kept in
// $XDG_CACHE_HOME/gear (~/.cache/gear): one small text file a GPU and host.
class LinkModel {
 public:
  // One measurement: GB/s delivered, by LinkPath.
  struct Sample {
    uint64_t run_bytes;    // neighbouring bytes in the store
    uint64_t batch_bytes;  // of one batch
    double gb_per_s[3];
  };

  // `samples`: every combination of the run sizes and batch sizes that occur in it.
  explicit LinkModel(std::vector<Sample> samples);

  // The model of this machine and `device`: from the cache, else measured (under 3 s, logged at
  // info) and written there. A cache that cannot be read or written is logged and done without.
  // Kept for the life of the process; thread safe.
  static const LinkModel& of_device(int device);

  // The faster path for a batch: Path::kZeroCopy or Path::kStaged.
  Path choose(const BatchLayout& layout, const store::PageLayout& pages) const;
  // Whether a batch that goes by zero-copy is faster with its rows in address order.
  bool order_pays(const BatchLayout& layout, const store::PageLayout& pages) const;
  // Seconds that a batch takes on a path.
  double seconds(LinkPath path, const BatchLayout& layout, const store::PageLayout& pages) const;

  // GB/s between the measured points, by logarithmic interpolation; the nearest point outside.
  double gb_per_s(LinkPath path, uint64_t run_bytes, uint64_t batch_bytes) const;
  // The smallest measured batch from which on zero-copy (of either order) is faster than staged for
  // runs of these bytes; 0: always, UINT64_MAX: never.
  uint64_t crossover_bytes(uint64_t run_bytes) const;

  const std::vector<Sample>& samples() const { return samples_; }

  // As stored: a version, one line a sample, a checksum. parse() throws CorruptData.
  std::string text() const;
  static LinkModel parse(std::string_view text);

 private:
  std::vector<Sample> samples_;        // by run_bytes, then batch_bytes
  std::vector<uint64_t> run_bytes_;    // ascending
  std::vector<uint64_t> batch_bytes_;  // ascending
};

// Measures every combination; the CUDA half of LinkModel::of_device.
std::vector<LinkModel::Sample> measure_link(int device);

}  // namespace gear::collect
