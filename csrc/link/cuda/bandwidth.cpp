#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/cuda/cuda.h"
#include "link/bandwidth.h"

namespace gear::link {
namespace {

constexpr uint64_t kBytes = uint64_t{256} << 20;
constexpr size_t kCopies = 7;

// Seconds of one copy, the median after one that is not counted.
double median_seconds(void* to, const void* from, cudaMemcpyKind kind, cudaStream_t stream) {
  std::vector<base::Event> marks;
  for (size_t i = 0; i <= kCopies; ++i) {
    marks.emplace_back(true);
  }
  GEAR_CUDA_TRY(cudaMemcpyAsync(to, from, kBytes, kind, stream));
  marks[0].record(stream);
  for (size_t i = 1; i < marks.size(); ++i) {
    GEAR_CUDA_TRY(cudaMemcpyAsync(to, from, kBytes, kind, stream));
    marks[i].record(stream);
  }
  marks.back().synchronize();
  std::array<float, kCopies> milliseconds{};
  for (size_t i = 0; i < kCopies; ++i) {
    milliseconds[i] = marks[i + 1].ms_since(marks[i]);
  }
  std::ranges::nth_element(milliseconds, milliseconds.begin() + kCopies / 2);
  return milliseconds[kCopies / 2] / 1e3;
}

}  // namespace

Bandwidth measure_bandwidth(int device) {
  const base::OnDevice on(device);
  const base::Stream stream(device);
  const base::DeviceArray<std::byte> first(kBytes, device);
  const base::DeviceArray<std::byte> second(kBytes, device);
  const base::PinnedArray<std::byte> host(kBytes, device);
  std::memset(host.get(), 0, kBytes);
  const auto gb_per_s = [&](void* to, const void* from, cudaMemcpyKind kind) {
    return static_cast<double>(kBytes) / median_seconds(to, from, kind, stream) / 1e9;
  };
  Bandwidth speed{};
  speed.host_to_device = gb_per_s(first.get(), host.get(), cudaMemcpyHostToDevice);
  speed.device_to_host = gb_per_s(host.get(), first.get(), cudaMemcpyDeviceToHost);
  speed.device = 2 * gb_per_s(second.get(), first.get(), cudaMemcpyDeviceToDevice);
  return speed;
}

}  // namespace gear::link
