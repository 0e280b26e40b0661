#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/batch.h"
#include "plan/output.h"
#include "plan/path.h"
#include "select/law.h"
#include "store/shard.h"

namespace gear::deliver {

constexpr uint64_t kMostPrefetch = 1024;

struct LoaderOptions {
  std::vector<plan::Output> outputs;
  uint64_t batch_size = 0;
  bool packed = false;
  uint64_t prefetch = 2;  ///< batches in flight behind the one delivered, each with its memory
  select::SamplerOptions sampler;
  int device = -1;                      ///< GPU that the batches go to; -1: host memory
  plan::Path path = plan::Path::kAuto;  ///< kAuto, kZeroCopy or kStaged; tier kPinned to a GPU only
  /// Of a batch to host memory: from here on the source's own thread gathers it. A smaller one is
  /// gathered by the thread that draws it, which takes less time than to wake another.
  uint64_t hand_over_bytes = 64 << 10;
};

/// What a loader was asked for, found good of its shard: what every source is made from.
struct Request {
  /// Throws InvalidArgument as plan::check_outputs and select::check_options do, for more than
  /// kMostPrefetch batches in flight, and where the path does not lead from the shard's tier to the
  /// device.
  Request(const store::Shard& shard, LoaderOptions asked);

  LoaderOptions options;  ///< of which the sampler looks as far ahead as the outputs reach
  std::shared_ptr<const plan::BatchLayout> layout;
};

}  // namespace gear::deliver
