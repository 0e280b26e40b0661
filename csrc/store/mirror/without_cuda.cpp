// What the seam of the mirrors answers in a build without CUDA.
#include "base/errors.h"
#include "store/mirror/mirror.h"
#include "store/mirror/taken_arrays.h"

namespace gear::store {
namespace {

[[noreturn]] void refuse() {
  throw base::InvalidArgument(
      "[buffer] a GPU asked for, but this build was made without CUDA (GEAR_WITH_CUDA=OFF): "
      "rebuild "
      "with CUDA, or use device='cpu' and tier='host'");
}

}  // namespace

std::unique_ptr<RowSink> make_row_sink(memory::Region&, uint64_t) { refuse(); }
std::shared_ptr<Mirror> make_mirror(Index&, int, RowSink*) { refuse(); }
std::unique_ptr<TakenArrays> make_taken_arrays(RowSink&) { refuse(); }

}  // namespace gear::store
