#pragma once

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <functional>
#include <memory>

namespace gear::process_group {

/// Around what is done to a caller's tensors for it: autograd does not see it, and it is allowed to
/// tensors of inference mode, in whatever mode the thread is.
using UnseenGuard = at::AutoDispatchBelowADInplaceOrView;

/// A point in the copies of a Copier.
class Mark {
 public:
  Mark() = default;
  virtual ~Mark() = default;
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  virtual bool reached() = 0;
  /// What the caller's stream is given from here on comes after it.
  virtual void hold_caller() = 0;
};

/// Copies of one operation between the memory of a GPU and of the host. They run beside the caller,
/// those from the GPU in the order in which they are asked for, and those to it likewise. Not
/// thread safe; any thread may call, also while another captures a CUDA graph, which nothing of it
/// ends.
class Copier {
 public:
  Copier() = default;
  virtual ~Copier() = default;
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  /// Memory of the host that the GPU copies from and to.
  virtual at::Tensor room(int64_t bytes) = 0;
  /// All copies come after what the caller's stream has been given so far.
  virtual void follow_caller() = 0;
  virtual std::unique_ptr<Mark> copy_in(const at::Tensor& to, const at::Tensor& from) = 0;
  virtual void copy_out(const at::Tensor& to, const at::Tensor& from) = 0;
  /// Of the copies to the GPU so far.
  virtual std::unique_ptr<Mark> mark_out() = 0;
  /// The memory of `tensor` stays its own until the copies to the GPU have ended, whoever frees it.
  virtual void keep(const at::Tensor& tensor) = 0;
  /// Calls `what` with the stream of those copies as the caller's.
  virtual void after_out(const std::function<void()>& what) = 0;
};

/// For a GPU, by two streams of torch's pool. It needs nothing of CUDA but what every torch has:
/// the one that runs may be built for CUDA or for ROCm, whatever this was compiled with.
std::unique_ptr<Copier> make_stream_copier(at::Device device);

}  // namespace gear::process_group
