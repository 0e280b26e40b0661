#include "torch/gpu/copier.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

#include "base/gpu/beside_captures.h"

namespace gear::process_group {
namespace {

using base::BesideCaptures;
using c10::impl::VirtualGuardImpl;

// torch's own guards leave the thread's device as it was without a context on it; what events do
// by themselves does not. So they find the device already set.
class EventMark final : public Mark {
 public:
  explicit EventMark(const c10::Stream& stream) : device_(stream.device()) {
    const BesideCaptures beside;
    const c10::DeviceGuard on_device(device_);
    event_.emplace(device_.type());
    event_->record(stream);
  }
  ~EventMark() override {
    const BesideCaptures beside;
    const c10::DeviceGuard on_device(device_);
    event_.reset();
  }
  bool reached() override {
    const BesideCaptures beside;
    return event_->query();
  }
  void hold_caller() override { block(VirtualGuardImpl(device_.type()).getStream(device_)); }
  void block(const c10::Stream& stream) const {
    const BesideCaptures beside;
    const c10::DeviceGuard on_device(device_);
    event_->block(stream);
  }

 private:
  at::Device device_;
  std::optional<c10::Event> event_;
};

class StreamCopier final : public Copier {
 public:
  explicit StreamCopier(at::Device device)
      : device_(device), guard_(device.type()), in_(stream()), out_(stream()) {}

  at::Tensor room(int64_t bytes) override {
    const BesideCaptures beside;
    const c10::DeviceGuard on_device(device_);
    return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  }

  void follow_caller() override {
    const EventMark here(guard_.getStream(device_));
    here.block(in_);
    here.block(out_);
  }

  std::unique_ptr<Mark> copy_in(const at::Tensor& to, const at::Tensor& from) override {
    copy(in_, to, from);
    return std::make_unique<EventMark>(in_);
  }

  void copy_out(const at::Tensor& to, const at::Tensor& from) override { copy(out_, to, from); }

  std::unique_ptr<Mark> mark_out() override { return std::make_unique<EventMark>(out_); }

  void keep(const at::Tensor& tensor) override {
    const BesideCaptures beside;
    const UnseenGuard unseen;
    at::Tensor(tensor).record_stream(out_);
  }

  void after_out(const std::function<void()>& what) override {
    const BesideCaptures beside;
    const c10::StreamGuard on_stream(out_);
    what();
  }

 private:
  c10::Stream stream() const {
    const BesideCaptures beside;
    return guard_.getStreamFromGlobalPool(device_);
  }

  static void copy(const c10::Stream& stream, const at::Tensor& to, const at::Tensor& from) {
    const BesideCaptures beside;
    const UnseenGuard unseen;
    const c10::StreamGuard on_stream(stream);
    to.copy_(from, /*non_blocking=*/true);
  }

  at::Device device_;
  VirtualGuardImpl guard_;
  c10::Stream in_;
  c10::Stream out_;
};

}  // namespace

std::unique_ptr<Copier> make_stream_copier(at::Device device) {
  return std::make_unique<StreamCopier>(device);
}

}  // namespace gear::process_group
