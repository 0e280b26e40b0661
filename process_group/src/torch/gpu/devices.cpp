#include "torch/gpu/devices.h"

namespace gear::process_group {
namespace {

constexpr uint64_t kNodeBytes = 1 << 20;  // less is sooner done by messages

class OfGpus final : public Devices {
 public:
  explicit OfGpus(bool takes_gpus) : takes_gpus_(takes_gpus) {}

  bool stages(at::Device device) const override { return takes_gpus_ && !device.is_cpu(); }
  std::unique_ptr<Copier> copier(at::Device device) const override {
    return make_stream_copier(device);
  }
  uint64_t least_for_node() const override { return kNodeBytes; }

 private:
  bool takes_gpus_;
};

}  // namespace

const Devices& host_alone() {
  static const auto* const devices = new OfGpus(false);
  return *devices;
}

const Devices& gpus() {
  static const auto* const devices = new OfGpus(true);
  return *devices;
}

}  // namespace gear::process_group
