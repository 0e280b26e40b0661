#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <new>
#include <utility>

/// What the CUDA sources share (*.cu and *_cuda.cpp; no other file may include this): checked
/// calls, and owners of what the runtime gives out. Owners are movable, and their destructors never
/// throw: a GPU that was lost is reported by the next checked call.
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

/// Lets the calling thread do, for its own lifetime, what a capture into a CUDA graph by another
/// thread forbids all threads: to allocate, to wait, and to ask whether an event has passed.
/// torch.cuda.graph captures in the mode *global*, in which such a call is answered with
/// cudaErrorStreamCaptureUnsupported, whatever the work does, and ends the capture (measured on an
/// H200). GEAR's streams are never part of a capture of others, so nothing of it gets lost.
class BesideCaptures {
 public:
  BesideCaptures() noexcept;
  ~BesideCaptures();

  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  int previous_;  // CUstreamCaptureMode of the thread
};

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

/// A stream of its own: ordered with no other (cudaStreamNonBlocking), ahead of those of ordinary
/// priority.
class Stream {
 public:
  Stream() = default;
  explicit Stream(int device);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();

  operator cudaStream_t() const noexcept { return stream_; }
  int device() const noexcept { return device_; }

  /// Waits for all that was put on it.
  void synchronize() const;
  /// The same for destructors: what failed was or will be reported by a call that may throw.
  void drain() const noexcept;

 private:
  cudaStream_t stream_ = nullptr;
  int device_ = -1;
};

/// A point in a stream's work. Made on the current GPU, and recorded on streams of that GPU only.
/// One that was never recorded counts as done.
class Event {
 public:
  Event() : Event(false) {}
  explicit Event(bool timing);
  Event(Event&& other) noexcept
      : event_(std::exchange(other.event_, nullptr)), device_(other.device_) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~Event();

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

  operator cudaEvent_t() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
  int device_ = -1;
};

/// Memory of one GPU, not zeroed. Throws OutOfMemory with the bytes asked for, what the GPU has
/// free, and what to change; InvalidArgument never. 0 bytes are a null pointer.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  DeviceBytes(uint64_t bytes, int device);
  DeviceBytes(DeviceBytes&& other) noexcept;
  DeviceBytes& operator=(DeviceBytes&& other) noexcept;
  ~DeviceBytes();

  void* get() const noexcept { return data_; }
  uint64_t bytes() const noexcept { return bytes_; }
  int device() const noexcept { return device_; }

 private:
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
  int device_ = -1;
};

/// Page-locked memory of the host, not zeroed, that every GPU reads and writes at the very address
/// that the host uses (portable, mapped). `device` is the GPU whose context holds it: that of
/// whoever asks, so that no other GPU gets a context. Throws OutOfMemory, likewise.
class PinnedBytes {
 public:
  PinnedBytes() = default;
  PinnedBytes(uint64_t bytes, int device);
  PinnedBytes(PinnedBytes&& other) noexcept;
  PinnedBytes& operator=(PinnedBytes&& other) noexcept;
  ~PinnedBytes();

  void* get() const noexcept { return data_; }
  uint64_t bytes() const noexcept { return bytes_; }

 private:
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
  int device_ = -1;
};

/// `count` objects in a GPU's memory; aligned to 256 bytes.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(uint64_t count, int device) : memory_(count * sizeof(T), device) {}

  T* get() const noexcept { return static_cast<T*>(memory_.get()); }
  uint64_t size() const noexcept { return memory_.bytes() / sizeof(T); }
  uint64_t bytes() const noexcept { return memory_.bytes(); }
  int device() const noexcept { return memory_.device(); }

 private:
  DeviceBytes memory_;
};

/// `count` objects in page-locked memory of the host.
template <class T>
class PinnedArray {
 public:
  PinnedArray() = default;
  PinnedArray(uint64_t count, int device) : memory_(count * sizeof(T), device) {}

  T* get() const noexcept { return static_cast<T*>(memory_.get()); }
  T& operator[](uint64_t i) const noexcept { return get()[i]; }
  uint64_t size() const noexcept { return memory_.bytes() / sizeof(T); }
  uint64_t bytes() const noexcept { return memory_.bytes(); }

 private:
  PinnedBytes memory_;
};

}  // namespace gear::base
