#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "base/gpu/devices.h"
#include "base/threads/own_thread.h"
#include "base/threads/spin.h"
#include "transport/device_transport.h"
#include "transport/nccl/grouped.h"
#include "transport/nccl/nccl_library.h"
#include "transport/on_all.h"
#include "transport/typed.h"

namespace gear::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWatchEvery{50};
constexpr double kSpinFor = 200e-6;  // seconds; then NCCL is asked less often
constexpr double kCloseWithin = 5;   // seconds, for what peers still take part in
constexpr uint64_t kGreetingBytes = 16;

// What has to be known of every rank before a communicator is made.
struct Participant {
  int32_t version;
  std::array<std::byte, 16> gpu;  // UUID
};

void check_members(Transport& control, int device) {
  Participant mine{};
  agree(control, "nccl", failure_of([&] {
          mine.gpu = base::device_uuid(device);
          mine.version = nccl::library().version;
        }));
  const std::vector<Participant> members = allgather(control, mine);
  for (size_t r = 0; r < members.size(); ++r) {
    if (members[r].version != members[0].version) {
      throw base::TransportError(
          base::cat("[transport] NCCL cannot be used: rank 0 has version ",
                    nccl::version_text(members[0].version), ", rank ", r, " ",
                    nccl::version_text(members[r].version),
                    ": load the same one on all ranks, by GEAR_NCCL for example"));
    }
    for (size_t other = 0; other < r; ++other) {
      if (members[other].gpu != members[r].gpu) {
        continue;
      }
      throw base::TransportError(
          base::cat("[transport] NCCL cannot be used: ranks ", other, " and ", r,
                    " are on one GPU: give every rank its own (device by local rank), "
                    "or the loader nccl=False"));
    }
  }
}

class Nccl final : public DeviceTransport {
 public:
  Nccl(Transport& control, int device)
      : control_(control),
        library_(nccl::library()),
        rank_(control.rank()),
        size_(control.size()),
        timeout_s_(control.timeout_s()),
        device_(device) {
    const nccl::UniqueId id = invite(control);
    const base::OnDevice on(device_);
    const std::string failed = failure_of([&] {
      connect(id);
      greet();
    });
    try {
      agree(control, "nccl", failed);
    } catch (...) {
      abort();
      throw;
    }
    watcher_ = base::OwnThread("gear-nccl", [this] { watch(); });
  }

  ~Nccl() override {
    {
      const std::lock_guard guard(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    watcher_.join();
    close();
  }

  std::string_view name() const noexcept override { return "nccl"; }

  void alltoallv(std::span<const DeviceRange> to, std::span<const DeviceRange> from,
                 uintptr_t stream) override {
    GEAR_CHECK(to.size() == size_ && from.size() == size_);
    const std::lock_guard guard(mutex_);
    raise();
    const auto empty = [](const DeviceRange& range) { return range.bytes == 0; };
    if (std::ranges::all_of(to, empty) && std::ranges::all_of(from, empty)) {
      return;
    }
    const base::OnDevice on(device_);
    try {
      enqueue(to, from, reinterpret_cast<cudaStream_t>(stream));
    } catch (const base::TransportError& error) {
      fail(error.what());
      throw;
    }
    enqueued_.record(reinterpret_cast<cudaStream_t>(stream));
    enqueued_at_ = Clock::now();
    pending_ = true;
  }

  void check() override {
    const std::lock_guard guard(mutex_);
    raise();
  }

 private:
  // The id of the communicator, made by rank 0.
  nccl::UniqueId invite(Transport& control) {
    nccl::UniqueId id{};
    agree(control, "nccl", failure_of([&] {
            if (rank_ == 0) {
              must(library_.get_unique_id(&id), "ncclGetUniqueId");
            }
          }));
    return allgather(control, id)[0];
  }

  void connect(const nccl::UniqueId& id) {
    nccl::Config config;
    config.blocking = 0;
    const nccl::Result status = library_.comm_init_rank_config(
        &communicator_, static_cast<int>(size_), id, static_cast<int>(rank_), &config);
    if (status != nccl::kInProgress) {
      must(status, "ncclCommInitRankConfig");
    }
    // Leaves the others time to say that they waited in vain.
    settle("ncclCommInitRankConfig", timeout_s_ / 2);
  }

  // NCCL connects two ranks when they first exchange something, and allocates memory for it: that
  // could wait for kernels of another communicator, which wait for the very ranks that are asked to
  // connect. Here nothing else is going on.
  void greet() {
    const base::DeviceArray<std::byte> memory(2 * kGreetingBytes * size_, device_);
    const base::Stream stream(device_);
    std::vector<DeviceRange> to;
    std::vector<DeviceRange> from;
    auto* data = static_cast<std::byte*>(memory.get());
    for (uint32_t r = 0; r < size_; ++r) {
      to.push_back({data + 2 * r * kGreetingBytes, kGreetingBytes});
      from.push_back({data + (2 * r + 1) * kGreetingBytes, kGreetingBytes});
    }
    GEAR_CUDA_TRY(cudaMemsetAsync(data, 0, memory.bytes(), stream));
    try {
      enqueue(to, from, stream);
      enqueued_.record(stream);
      const Clock::time_point start = Clock::now();
      while (!enqueued_.done()) {
        if (const auto error = asynchronous_error()) {
          throw base::TransportError(*error);
        }
        if (base::seconds_since(start) > timeout_s_ / 2) {
          throw base::TransportError(late("a first exchange"));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    } catch (...) {
      abort();  // memory that a kernel waits to fill cannot be freed
      throw;
    }
  }

  void enqueue(std::span<const DeviceRange> to, std::span<const DeviceRange> from,
               cudaStream_t stream) {
    const nccl::Result status = nccl::grouped(library_, [&] {
      for (uint32_t step = 1; step < size_; ++step) {
        const uint32_t next = (rank_ + step) % size_;
        const uint32_t last = (rank_ + size_ - step) % size_;
        if (to[next].bytes > 0) {
          accept(library_.send(to[next].data, to[next].bytes, nccl::kByte, static_cast<int>(next),
                               communicator_, stream),
                 "ncclSend");
        }
        if (from[last].bytes > 0) {
          accept(library_.recv(from[last].data, from[last].bytes, nccl::kByte,
                               static_cast<int>(last), communicator_, stream),
                 "ncclRecv");
        }
      }
    });
    accept(status, "an exchange in a group");
    // What is put on the stream next must come behind it, so it has to be there.
    settle("ncclGroupEnd", timeout_s_);
  }

  void watch() {
    std::unique_lock guard(mutex_);
    while (!wake_.wait_for(guard, kWatchEvery, [this] { return stop_; })) {
      if (!pending_ || error_) {
        continue;
      }
      guard.unlock();  // a thread that has Python's lock, which look() may want, may wait for it
      const std::string ended = failure_of_group();
      guard.lock();
      if (!pending_ || error_) {
        continue;
      }
      if (enqueued_.done_or_lost()) {
        pending_ = false;  // a lost GPU is reported by the next checked call
      } else if (!ended.empty()) {
        fail(ended);
      } else if (const auto failed = asynchronous_error()) {
        fail(*failed);
      } else if (base::seconds_since(enqueued_at_) > timeout_s_) {
        fail(late("an exchange of rows"));
      }
    }
  }

  std::string failure_of_group() const {
    try {
      control_.look();
    } catch (const base::TransportError& error) {
      return error.what();
    }
    return {};
  }

  // ---- under the mutex, or before there is a second thread ----
  std::string late(const char* what) const {
    return base::cat("[transport] NCCL: rank ", rank_, " waited for ", what, " with the other ",
                     size_ - 1, " ranks for longer than ", timeout_s_,
                     " s: a rank does not take part, or the network between them does not pass; "
                     "NCCL_DEBUG=INFO says which way NCCL takes");
  }

  std::string text_of(nccl::Result status, const char* call) const {
    const char* detail = library_.get_last_error(communicator_);
    return base::cat("[transport] ", call, " failed on rank ", rank_, " (NCCL ",
                     nccl::version_text(library_.version), "): ", library_.get_error_string(status),
                     detail == nullptr || *detail == '\0' ? "" : ": ",
                     detail == nullptr ? "" : detail, ": NCCL_DEBUG=INFO says more");
  }

  void must(nccl::Result status, const char* call) const {
    if (status != nccl::kSuccess) {
      throw base::TransportError(text_of(status, call));
    }
  }
  void accept(nccl::Result status, const char* call) const {
    if (status != nccl::kInProgress) {
      must(status, call);
    }
  }

  std::optional<std::string> asynchronous_error() const {
    nccl::Result state = nccl::kSuccess;
    const nccl::Result asked = library_.comm_get_async_error(communicator_, &state);
    if (asked != nccl::kSuccess) {
      return text_of(asked, "ncclCommGetAsyncError");
    }
    if (state == nccl::kSuccess || state == nccl::kInProgress) {
      return std::nullopt;
    }
    return text_of(state, "an exchange");
  }

  // Returns when NCCL has done what a call left in progress.
  void settle(const char* call, double within_s) const {
    const Clock::time_point start = Clock::now();
    for (;;) {
      nccl::Result state = nccl::kInProgress;
      must(library_.comm_get_async_error(communicator_, &state), "ncclCommGetAsyncError");
      if (state != nccl::kInProgress) {
        must(state, call);
        return;
      }
      const double waited = base::seconds_since(start);
      if (waited > within_s) {
        throw base::TransportError(late(call));
      }
      if (waited > kSpinFor) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }

  void fail(const std::string& why) {
    if (error_) {
      return;
    }
    error_ = why;
    pending_ = false;
    abort();
  }

  void raise() const {
    if (error_) {
      throw base::TransportError(*error_);
    }
  }

  void abort() noexcept {
    if (communicator_ == nullptr) {
      return;
    }
    static_cast<void>(library_.comm_abort(communicator_));
    communicator_ = nullptr;
  }

  // Gives what is in flight some time, and then no more.
  void close() noexcept {
    if (communicator_ == nullptr) {
      return;
    }
    try {
      const base::OnDevice on(device_);
      accept(library_.comm_finalize(communicator_), "ncclCommFinalize");
      settle("ncclCommFinalize", std::min(timeout_s_, kCloseWithin));
      static_cast<void>(library_.comm_destroy(communicator_));
      communicator_ = nullptr;
    } catch (const std::exception&) {
      abort();
    }
  }

  Transport& control_;  // asked whether the group has failed
  const nccl::Library& library_;
  uint32_t rank_;
  uint32_t size_;
  double timeout_s_;
  int device_;
  nccl::Communicator* communicator_ = nullptr;

  std::mutex mutex_;  // of what follows, and of calls with the communicator
  std::condition_variable wake_;
  base::Event enqueued_;  // behind the last exchange
  Clock::time_point enqueued_at_;
  bool pending_ = false;
  bool stop_ = false;
  std::optional<std::string> error_;
  base::OwnThread watcher_;
};

}  // namespace

std::unique_ptr<DeviceTransport> make_nccl(Transport& control, int device) {
  const base::OnDevice on(device);
  check_members(control, device);
  return std::make_unique<Nccl>(control, device);
}

}  // namespace gear::transport
