#include "store/mirror/taken_arrays.h"

#include <chrono>
#include <vector>

#include "base/cuda/staging.h"
#include "base/errors.h"
#include "base/threads/blocking.h"
#include "base/threads/polling.h"
#include "store/mirror/cuda/event_end.h"

namespace gear::store {
namespace {

constexpr size_t kParts = 2;
constexpr uint64_t kAlign = 256;
constexpr std::chrono::microseconds kPoll{20};

uint64_t room_of(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

class DeviceTakenArrays final : public TakenArrays {
 public:
  explicit DeviceTakenArrays(RowSink& rows) : rows_(rows), stream_(rows.stream().device()) {
    for (size_t i = 0; i < kParts; ++i) {
      parts_.push_back({base::GrowingBuffer(base::GrowingBuffer::Place::kPinned, device()),
                        base::GrowingBuffer(base::GrowingBuffer::Place::kDevice, device()),
                        base::Event::on(device()), std::make_shared<EventEnd>(device())});
    }
  }

  ~DeviceTakenArrays() override {
    for (const Part& part : parts_) {
      part.taken->event.drain();
      part.read.drain();
    }
  }

  int device() const override { return stream_.device(); }
  uintptr_t stream() const override {
    return reinterpret_cast<uintptr_t>(static_cast<cudaStream_t>(stream_));
  }

  std::shared_ptr<const ReadEnd> take(std::span<const Array> arrays, uintptr_t stream,
                                      std::span<const uintptr_t> others,
                                      std::span<const std::byte*> copies) override {
    GEAR_CHECK(arrays.size() == copies.size());
    const base::OnDevice current(device());
    const auto made_on = reinterpret_cast<cudaStream_t>(stream);
    refuse_captured(made_on);
    uint64_t host_bytes = 0;
    uint64_t device_bytes = 0;
    for (const Array& array : arrays) {
      (array.to_host ? host_bytes : device_bytes) += room_of(array.bytes);
    }
    now_ = (now_ + 1) % kParts;
    Part& part = parts_[now_];
    std::byte* on_host = part.host.get(host_bytes);
    std::byte* on_device = part.device.get(device_bytes);
    part.taken->event.make_wait(made_on);  // of a call that another stream made, and nobody read
    part.read.make_wait(made_on);
    if (part.taken.use_count() > 1) {  // somebody still holds that of the call before
      part.taken = std::make_shared<EventEnd>(device());
    }
    for (size_t i = 0; i < arrays.size(); ++i) {
      std::byte*& next = arrays[i].to_host ? on_host : on_device;
      GEAR_CUDA_TRY(
          cudaMemcpyAsync(next, arrays[i].data, arrays[i].bytes, cudaMemcpyDefault, made_on));
      copies[i] = next;
      next += room_of(arrays[i].bytes);
    }
    part.taken->event.record(made_on);
    for (const uintptr_t other : others) {
      part.taken->event.make_wait(reinterpret_cast<cudaStream_t>(other));
    }
    return part.taken;
  }

  void wait() override {
    for (base::Polling polling(kPoll); !parts_[now_].taken->event.done(); polling.pause()) {
    }
  }

  void fetch(std::span<std::byte> to, const std::byte* copy) override {
    const base::OnDevice current(device());
    wait();
    const base::Blocking waiting;
    GEAR_CUDA_TRY(cudaMemcpyAsync(to.data(), copy, to.size(), cudaMemcpyDeviceToHost, stream_));
    stream_.synchronize();
  }

  void write_rows(std::span<const RowSink::DeviceColumn> columns,
                  std::span<const RowSink::RowMove> moves) override {
    const base::OnDevice current(device());
    parts_[now_].taken->event.make_wait(rows_.stream());
    rows_.write_rows(columns, moves);
    parts_[now_].read.record(rows_.stream());
  }

 private:
  struct Part {
    base::GrowingBuffer host;
    base::GrowingBuffer device;
    base::Event read;                 // by the sink's stream
    std::shared_ptr<EventEnd> taken;  // the copies are made
  };

  // What is captured does not run now, and would draw the sink's stream into the graph.
  static void refuse_captured(cudaStream_t stream) {
    if (base::is_capturing(stream)) {
      throw base::InvalidArgument(
          "[writer] append of arrays on a GPU whose stream is being captured into a CUDA graph: "
          "append outside of the capture, what the graph's replays have made");
    }
  }

  RowSink& rows_;
  base::Stream stream_;
  std::vector<Part> parts_;
  size_t now_ = 0;
};

}  // namespace

std::unique_ptr<TakenArrays> make_taken_arrays(RowSink& rows) {
  const base::OnDevice current(rows.stream().device());
  return std::make_unique<DeviceTakenArrays>(rows);
}

}  // namespace gear::store
