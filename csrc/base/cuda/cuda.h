#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "base/gpu/beside_captures.h"

/// What the CUDA sources share (those of folders cuda/ and nccl/; no other file may include this):
/// checked calls, and owners of what the runtime gives out. Owners are movable, and their
/// destructors never throw: a GPU that was lost is reported by the next checked call.
namespace gear::base {

/// Throws CudaError: "[cuda] cudaMalloc failed on GPU 0: <text> (<name>): <what to do>". Of `call`,
/// what stands before the first parenthesis is shown.
[[noreturn]] void fail_cuda(cudaError_t status, const char* call);

inline void check_cuda(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]] {
    fail_cuda(status, call);
  }
}

/// Every call of the runtime stands in one. After a kernel launch:
/// GEAR_CUDA_TRY(cudaGetLastError()).
#define GEAR_CUDA_TRY(call) ::gear::base::check_cuda((call), #call)

/// Makes `device` current on the calling thread for its own lifetime, beside captures of other
/// threads; a thread that had no current GPU has none again. Nearly every call of the runtime makes
/// a context on GPU 0 in a thread that has none: each stands inside one of these, so that a rank
/// takes no memory of a GPU that is not its own.
class OnDevice {
 public:
  /// Throws CudaError, naming the GPUs there are, for an index that is not among them.
  explicit OnDevice(int device);
  /// For destructors: of a GPU that is lost, leaves the thread as it is.
  OnDevice(int device, std::nothrow_t) noexcept;
  ~OnDevice();

  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  cudaError_t enter(int device) noexcept;

  BesideCaptures beside_;
  void* previous_ = nullptr;  ///< CUcontext
  bool changed_ = false;
};

/// The calling thread's current GPU. Throws CudaError where there is none at all.
int current_device();

/// Gives a handle of the runtime back on the GPU that it belongs to: the deleter of its owner.
template <auto kFree>
struct FreeOn {
  int device = -1;

  template <class Handle>
  void operator()(Handle handle) const noexcept {
    const OnDevice on(device, std::nothrow);
    static_cast<void>(kFree(handle));
  }
};

/// A stream of its own: ordered with no other (cudaStreamNonBlocking), ahead of those of ordinary
/// priority.
class Stream {
 public:
  Stream() = default;
  explicit Stream(int device);

  operator cudaStream_t() const noexcept { return stream_.get(); }
  int device() const noexcept { return stream_.get_deleter().device; }

  /// Waits for all that was put on it.
  void synchronize() const;
  /// The same for destructors: what failed was or will be reported by a call that may throw.
  void drain() const noexcept;

 private:
  std::unique_ptr<CUstream_st, FreeOn<cudaStreamDestroy>> stream_;
};

/// Whether what is put on `stream` goes into a graph that is being captured, and not to the GPU; of
/// the default stream, whether any other one is captured that would wait for it. Throws CudaError.
bool is_capturing(cudaStream_t stream);

/// A point in a stream's work. Made on the current GPU, and recorded on streams of that GPU only.
/// One that was never recorded counts as done.
class Event {
 public:
  Event() : Event(false) {}
  explicit Event(bool timing);
  /// Of that GPU, whichever is current.
  static Event on(int device) {
    const OnDevice current(device);
    return Event();
  }

  void record(cudaStream_t stream);

  /// What is put on `stream` from here on runs after this event; the host does not wait.
  void make_wait(cudaStream_t stream) const;

  /// Whether the stream has come here. Any thread, beside captures too.
  bool done() const;
  /// The same for those that cannot throw: true also where the GPU is lost, on which nothing runs
  /// any more; false after any other failure, of which it says nothing about the work.
  bool done_or_lost() const noexcept;
  void synchronize() const;
  /// The same for destructors.
  void drain() const noexcept;

  /// Milliseconds from `earlier` to this one; both were made with timing and are done.
  float ms_since(const Event& earlier) const;

 private:
  int device() const noexcept { return event_.get_deleter().device; }

  std::unique_ptr<CUevent_st, FreeOn<cudaEventDestroy>> event_;
};

/// Memory of one GPU; page-locked memory of the host, that every GPU reads and writes at the very
/// address that the host uses (portable, mapped).
using DeviceMemory = std::unique_ptr<void, FreeOn<cudaFree>>;
using PinnedMemory = std::unique_ptr<void, FreeOn<cudaFreeHost>>;

/// Either of them, not zeroed; of 0 bytes, null. `device` is the GPU whose memory it is, or whose
/// context holds it: that of whoever asks, so that no other GPU gets a context. Throws OutOfMemory
/// with the bytes asked for, what the GPU has free, and what to change.
void allocate(uint64_t bytes, int device, DeviceMemory& memory);
void allocate(uint64_t bytes, int device, PinnedMemory& memory);

/// `count` objects there, as allocate() gives it; aligned to 256 bytes.
template <class T, class Memory>
class CudaArray {
 public:
  CudaArray() = default;
  CudaArray(uint64_t count, int device) : size_(count) {
    allocate(count * sizeof(T), device, memory_);
  }

  T* get() const noexcept { return static_cast<T*>(memory_.get()); }
  T& operator[](uint64_t i) const noexcept { return get()[i]; }
  uint64_t size() const noexcept { return memory_ ? size_ : 0; }
  uint64_t bytes() const noexcept { return size() * sizeof(T); }
  int device() const noexcept { return memory_.get_deleter().device; }

 private:
  Memory memory_;
  uint64_t size_ = 0;
};

template <class T>
using DeviceArray = CudaArray<T, DeviceMemory>;
template <class T>
using PinnedArray = CudaArray<T, PinnedMemory>;

}  // namespace gear::base
