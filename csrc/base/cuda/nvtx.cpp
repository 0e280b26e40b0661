#include <nvtx3/nvToolsExt.h>

#include "base/gpu/nvtx.h"

namespace gear::base {

NvtxRange::NvtxRange(const char* name) noexcept { nvtxRangePushA(name); }

NvtxRange::~NvtxRange() { nvtxRangePop(); }

}  // namespace gear::base
