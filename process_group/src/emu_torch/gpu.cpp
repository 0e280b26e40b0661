#include "emu_torch/gpu.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>

namespace gear::emu {
namespace {

using c10::impl::VirtualGuardImpl;

// From CUDA's driver, which every torch for CUDA has loaded: no toolkit is needed for this.
template <typename Function>
Function* driver_function(const char* name) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  void* const found = driver == nullptr ? nullptr : ::dlsym(driver, name);
  TORCH_CHECK(found != nullptr, "[emu] CUDA's driver (libcuda.so.1) has no ", name,
              ": tensors on its GPUs are held by it");
  return reinterpret_cast<Function*>(found);
}

std::string words_of(int code) {
  const char* words = nullptr;
  driver_function<int(int, const char**)>("cuGetErrorString")(code, &words);
  return c10::str("CUDA says ", words == nullptr ? "nothing" : words, " (", code, ")");
}

void check(int code, const char* what) {
  TORCH_CHECK(code == 0, "[emu] ", what, ": ", words_of(code));
}

void check(int code, const char* what, const Footprint& footprint) {
  TORCH_CHECK(code == 0, "[emu] ", what, " of ", footprint.blocks, " blocks of ", footprint.threads,
              " threads and ", footprint.shared, " bytes of shared memory: ", words_of(code),
              "; that is what the links say of NCCL's kernels: calibrate them on this GPU");
}

// As CUDA's driver knows it. Older torch has no name for that but its own for CUDA.
template <typename Guard>
void* native(const Guard& guard, const c10::Stream& stream) {
  if constexpr (requires { guard.getStreamNativeHandle(stream); }) {
    return guard.getStreamNativeHandle(stream);
  } else {
    using Native = void*(const c10::Stream*);  // a CUDAStream is a Stream and nothing else
    static auto* const of_torch = [] {
      void* const library = ::dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
      void* const found =
          library == nullptr ? nullptr : ::dlsym(library, "_ZNK3c104cuda10CUDAStream6streamEv");
      TORCH_CHECK(found != nullptr, "[emu] this torch does not say which of CUDA's a stream is");
      return reinterpret_cast<Native*>(found);
    }();
    return of_torch(&stream);
  }
}

void* native(const c10::Stream& stream) {
  return native(VirtualGuardImpl(stream.device_type()), stream);
}

constexpr unsigned kSharedOfAll = 48 << 10;  // more has to be asked for
constexpr int kMostShared = 8;               // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

}  // namespace

Gpu& Gpu::of(at::Device device, const c10::Stream& caller, const Load& load) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, Gpu*>;
  {
    const std::lock_guard guard(mutex);
    if (const auto found = all.find(device.index()); found != all.end()) {
      return *found->second;
    }
  }
  TORCH_CHECK_VALUE(graph_of(caller) == 0, "[emu] the first operation on ", device,
                    " is captured by a CUDA graph: make one before, as for NCCL");
  auto* const made = new Gpu(device, load);  // without the lock: it asks for Python's
  const std::lock_guard guard(mutex);
  return *all.try_emplace(device.index(), made).first->second;
}

Gpu::Gpu(at::Device device, const Load& load)
    : kernels_(load()),
      in_flight_(at::zeros({kMostLinks}, at::TensorOptions().dtype(at::kInt).device(device))) {
  VirtualGuardImpl(device.type()).synchronizeDevice(device.index());  // for all streams
}

at::Tensor Gpu::times(const c10::Stream& stream) const {
  const c10::StreamGuard on_stream(stream);
  return at::empty({2}, in_flight_.options().dtype(at::kLong));
}

void Gpu::launch(uintptr_t kernel, const c10::Stream& stream, const Footprint& footprint,
                 void** arguments) const {
  using Launch = int(uintptr_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     unsigned, void*, void**, void**);
  static auto* const launch = driver_function<Launch>("cuLaunchKernel");
  static auto* const allow = driver_function<int(uintptr_t, int, int)>("cuFuncSetAttribute");
  const c10::DeviceGuard on_device(stream.device());
  if (footprint.shared > kSharedOfAll) {
    check(allow(kernel, kMostShared, static_cast<int>(footprint.shared)), "a hold", footprint);
  }
  check(launch(kernel, footprint.blocks, 1, 1, footprint.threads, 1, 1, footprint.shared,
               native(stream), arguments, nullptr),
        "a hold", footprint);
}

void Gpu::mark(const c10::Stream& stream, const at::Tensor& times, int place) const {
  void* cells = times.data_ptr();
  void* arguments[] = {&cells, &place};
  launch(kernels_.mark, stream, {}, arguments);
}

void Gpu::mark_began(const c10::Stream& stream, const at::Tensor& times) const {
  mark(stream, times, 0);
}

void Gpu::mark_valued(const c10::Stream& stream, const at::Tensor& times) const {
  mark(stream, times, 1);
}

void Gpu::hold(const c10::Stream& stream, const at::Tensor& times, double seconds, Links links,
               const Footprint& footprint) const {
  void* cells = times.data_ptr();
  double for_ns = seconds * 1e9;
  void* in_flight = in_flight_.data_ptr();
  void* arguments[] = {&cells, &for_ns, &links, &in_flight};
  launch(kernels_.hold, stream, footprint, arguments);
}

uint64_t Gpu::graph_of(const c10::Stream& stream) {
  using Ask = int(void*, int*, uint64_t*, void*, void*, void*);
  static auto* const ask = driver_function<Ask>("cuStreamGetCaptureInfo_v2");
  int status = 0;
  uint64_t graph = 0;
  check(ask(native(stream), &status, &graph, nullptr, nullptr, nullptr), "a stream");
  return status == 0 ? 0 : graph;
}

}  // namespace gear::emu
