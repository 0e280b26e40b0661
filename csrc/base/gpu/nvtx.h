#pragma once

namespace gear::base {

/// A named range on the calling thread's row of a profiler's time line (Nsight Systems, ncu): from
/// construction to destruction. The names in use are "gear.select", "gear.plan", "gear.gather" and
/// "gear.wait". Costs some nanoseconds where no profiler listens; nothing happens in a build
/// without CUDA. `name` is copied by the profiler only.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name) noexcept;
  ~NvtxRange();

  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace gear::base
