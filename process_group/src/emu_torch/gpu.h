#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>

#include "emu/flows.h"
#include "emu/footprint.h"

namespace gear::emu {

/// The kernels that hold a stream, of one GPU: functions of its driver (CUfunction).
struct Kernels {
  uintptr_t mark = 0;
  uintptr_t hold = 0;
};

/// A GPU of this process, on whose streams operations are held by kernels that look at its clock:
/// no thread of the host takes part, and a CUDA graph may capture it. Those under way count
/// themselves, link by link, in the GPU's memory, and each takes its share of the time that passes:
/// what Flows does on CPUs. Any thread may call.
class Gpu {
 public:
  /// Compiles the kernels for a GPU, the current one.
  using Load = std::function<Kernels()>;

  /// Of that device; the first call makes it, and throws ValueError while `caller`, the stream of
  /// this thread, is captured by a CUDA graph. It is never destroyed.
  static Gpu& of(at::Device device, const c10::Stream& caller, const Load& load);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// When an operation began, and when its values were there: memory of the GPU, of `stream`.
  at::Tensor times(const c10::Stream& stream) const;
  /// `stream` notes when it comes to this, in `times` as the one or the other.
  void mark_began(const c10::Stream& stream, const at::Tensor& times) const;
  void mark_valued(const c10::Stream& stream, const at::Tensor& times) const;
  /// `stream` goes on when `seconds` have passed since the operation began, alone on its links. The
  /// kernels that keep it from its place on the GPU, once its values are there, keep it longer.
  void hold(const c10::Stream& stream, const at::Tensor& times, double seconds, Links links,
            const Footprint& footprint) const;

  /// The CUDA graph that is being made of what `stream` is given, by its number; 0: none is.
  static uint64_t graph_of(const c10::Stream& stream);

 private:
  Gpu(at::Device device, const Load& load);
  void launch(uintptr_t kernel, const c10::Stream& stream, const Footprint& footprint,
              void** arguments) const;
  void mark(const c10::Stream& stream, const at::Tensor& times, int place) const;

  Kernels kernels_;
  at::Tensor in_flight_;  // on the GPU: by link
};

}  // namespace gear::emu
