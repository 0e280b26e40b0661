// What the core says of GPUs, on machines that have none too.

#include <doctest/doctest.h>

#include "base/errors.h"
#include "base/gpu/devices.h"
#include "base/gpu/nvtx.h"
#include "base/gpu/pcie_link.h"
#include "expect_message.h"
#include "link/bandwidth.h"

#if defined(GEAR_CUDA)
#include "base/cuda/cuda.h"
#endif

using namespace gear::base;
using gear::testing::expect_message;

TEST_CASE("devices are as many as are counted") {
  const std::vector<DeviceInfo> found = devices();
  CHECK(static_cast<int>(found.size()) == device_count());
  for (const DeviceInfo& device : found) {
    CHECK(device.index == &device - found.data());
    CHECK_FALSE(device.name.empty());
    CHECK(device.major >= 7);
    CHECK(device.free_bytes <= device.memory_bytes);
    CHECK(device.uuid.size() == 40);
    CHECK(device_names().find(device.name) != std::string::npos);
  }
  if (found.empty()) {
    CHECK(device_names() == "none");
  }
}

TEST_CASE("a PCIe link that nobody knows is unknown, not an error") {
  const PcieLink link = pcie_link("ffff:ff:1f.7");
  CHECK(link.generation == 0);
  CHECK(link.width == 0);
}

TEST_CASE("ranges for a profiler nest") {
  const NvtxRange outer("gear.test");
  const NvtxRange inner("gear.test.inner");
}

#if defined(GEAR_CUDA)

TEST_CASE("a build with CUDA knows its runtime, wherever it runs") {
  CHECK(runtime_version() >= 12000);
}

TEST_CASE("a failed call says its name, what failed and what to do") {
  expect_message<gear::base::CudaError>(
      [] { fail_cuda(cudaErrorInvalidValue, "cudaMemcpyAsync(a, b)"); },
      "[cuda] cudaMemcpyAsync failed", "invalid argument", "(cudaErrorInvalidValue)");
  expect_message<gear::base::CudaError>(
      [] { fail_cuda(cudaErrorECCUncorrectable, "cudaMalloc(&p, n)"); }, "cudaMalloc failed",
      "GPU was lost", "checkpoint");
  expect_message<gear::base::CudaError>(
      [] { fail_cuda(cudaErrorNoKernelImageForDevice, "cudaGetLastError()"); },
      "GEAR_CUDA_ARCHITECTURES");
  CHECK_NOTHROW(check_cuda(cudaSuccess, "cudaMalloc"));
}

TEST_CASE("owners of nothing are empty, and may be moved and destroyed") {
  DeviceArray<int> array;
  const DeviceArray<int> moved = std::move(array);
  CHECK(moved.get() == nullptr);
  CHECK(moved.size() == 0);
  const DeviceArray<int> none(0, 0);
  CHECK(none.get() == nullptr);
  const PinnedArray<int> pinned;
  CHECK(pinned.bytes() == 0);
  Stream stream;
  const Stream other = std::move(stream);
  CHECK(static_cast<cudaStream_t>(other) == nullptr);
}

TEST_CASE("without a driver every call says so") {
  if (driver_version() != 0) {
    return;
  }
  CHECK(device_count() == 0);
  CHECK(devices().empty());
  const auto says_so = [](const auto& action) {
    expect_message<gear::base::CudaError>(action, "[cuda]", "failed", "no NVIDIA driver",
                                          "tier='host'", "device='cpu'");
  };
  says_so([] { current_device(); });
  says_so([] { OnDevice(0); });
  says_so([] { Stream(0); });
  says_so([] { Event(); });
  says_so([] { DeviceArray<int>(1, 0); });
  says_so([] { PinnedArray<int>(1, 0); });
  says_so([] { gear::link::measure_bandwidth(0); });
}

#else

TEST_CASE("a build without CUDA has no GPUs") {
  CHECK(device_count() == 0);
  CHECK(driver_version() == 0);
  CHECK(runtime_version() == 0);
  expect_message<gear::base::InvalidArgument>([] { gear::link::measure_bandwidth(0); }, "[memory]",
                                              "without CUDA");
}

#endif
