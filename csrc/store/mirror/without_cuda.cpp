// What the seam of the mirrors answers in a build without CUDA.
#include "base/gpu/devices.h"
#include "store/mirror/mirror.h"
#include "store/mirror/taken_arrays.h"

namespace gear::store {
namespace {

[[noreturn]] void refuse() { base::refuse_without_cuda("[buffer] a GPU"); }

}  // namespace

std::unique_ptr<RowSink> make_row_sink(memory::Region&, uint64_t) { refuse(); }
std::shared_ptr<Mirror> make_mirror(Index&, int, RowSink*) { refuse(); }
std::unique_ptr<TakenArrays> make_taken_arrays(RowSink&) { refuse(); }

}  // namespace gear::store
