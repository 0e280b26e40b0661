#pragma once

#include <pybind11/pybind11.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "store/mirror/taken_arrays.h"
#include "store/shard.h"

namespace gear::bindings {

/// The arrays of a call that lie in a GPU's memory: taken there, where that is the memory of the
/// buffer, else fetched to the host, which waits for them. One call at a time, with the GIL but for
/// wait() and end().
class GpuArrays {
 public:
  /// What `stream_of` says of arrays whose stream is not known: nothing overwrites them (None), or
  /// something may.
  static constexpr int64_t kMayBeOverwritten = -1;

  /// `stream_of(array, device)` gives the stream on which the array's framework works there.
  GpuArrays(store::Shard& shard, py::function stream_of);

  /// Whether `value` has memory of a GPU, by DLPack.
  static bool is_on_gpu(py::handle value);

  /// Begins a call; what those before have done with is dropped.
  void begin();
  /// The array's DLPack capsule, which lasts as long as it has to. Throws InvalidArgument for an
  /// array on another GPU than the buffer.
  py::capsule capsule_of(py::handle array);
  /// Null where the array stays where it is; else `bytes` of the array that came last, on the host.
  std::shared_ptr<std::byte[]> fetched(const std::byte* data, uint64_t bytes) const;
  /// `*copy` becomes the place of the array's copy.
  void add(const std::byte* data, uint64_t bytes, bool to_host, const std::byte** copy);

  /// Copies what was added, if anything: TakenArrays::take(). Waits for arrays that may be
  /// overwritten on streams that are not known.
  void take();
  /// As TakenArrays::wait().
  void wait() { taken_->wait(); }
  store::TakenArrays* taken() const { return taken_.get(); }
  /// What the call was given is not read any more, but by the GPU.
  void drop() { capsules_.clear(); }
  /// Takes no more arrays: waits until the copies are made and read.
  void end() { taken_.reset(); }

 private:
  py::function stream_of_;
  // Goes behind taken_, which waits for the copies of these.
  std::deque<std::pair<std::shared_ptr<const store::ReadEnd>, std::vector<py::object>>> lasting_;
  std::vector<py::object> capsules_;
  std::unique_ptr<store::TakenArrays> taken_;  // null: the buffer is not in a GPU's memory
  // Of one call:
  std::optional<uintptr_t> stream_;
  std::vector<uintptr_t> others_;    // streams of other frameworks
  bool outlast_ = false;             // an array's own stream is not known
  bool may_be_overwritten_ = false;  // likewise, and something may write there
  std::vector<store::TakenArrays::Array> arrays_;
  std::vector<const std::byte**> copies_;
  std::vector<const std::byte*> places_;  // theirs
};

}  // namespace gear::bindings
