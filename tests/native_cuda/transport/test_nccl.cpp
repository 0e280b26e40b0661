// NCCL between threads of this process, a GPU each: what a rank sends is what the other receives,
// and what cannot be is said on all ranks alike.
#include <doctest/doctest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "base/gpu/devices.h"
#include "device_memory.h"
#include "transport/device_transport.h"
#include "transport/loopback.h"
#include "transport/nccl/nccl_library.h"

using namespace gear::transport;

namespace {

// Runs `body` as every rank, and returns what each threw ("" for nothing).
std::vector<std::string> on_ranks(uint32_t size, double timeout_s,
                                  const std::function<void(Transport&)>& body) {
  auto transports = make_loopback(size, timeout_s);
  std::vector<std::string> thrown(size);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(*transports[r]);
      } catch (const std::exception& error) {
        thrown[r] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return thrown;
}

std::byte value_of(uint64_t round, uint32_t from, uint32_t to, uint64_t i) {
  return static_cast<std::byte>((i * 31 + round * 7 + from * 3 + to) % 251);
}

// What rank `from` sends to rank `to`: nothing now and then, never a round number.
uint64_t bytes_of(uint64_t round, uint32_t from, uint32_t to) {
  return (round + from + to) % 3 == 0 ? 0 : 1 + 100003 * round + 17 * from + to;
}

struct Range {
  gear::base::DeviceArray<std::byte> memory;
  DeviceRange range;
};

Range device_range(uint64_t bytes, int device) {
  Range made{gear::base::DeviceArray<std::byte>(bytes, device), {}};
  made.range = {made.memory.get(), bytes};
  return made;
}

}  // namespace

TEST_CASE("the NCCL that is found says its version") {
  const nccl::Library& found = nccl::library();
  MESSAGE("NCCL ", nccl::version_text(found.version), ", ", found.path);
  CHECK(found.version >= 21800);
  CHECK(nccl::version_text(22703) == "2.27.3");
  CHECK(nccl::version_text(2708) == "2.7.8");
}

TEST_CASE("every rank receives what the others send, round after round") {
  const auto size = static_cast<uint32_t>(gear::base::device_count());
  const auto thrown = on_ranks(size, 30, [&](Transport& control) {
    const auto device = static_cast<int>(control.rank());
    const auto nccl = make_nccl(control, device);
    CHECK(nccl->name() == "nccl");
    const gear::base::OnDevice on(device);
    const gear::base::Stream stream(device);
    for (uint64_t round = 0; round < 6; ++round) {
      std::vector<Range> memory;
      std::vector<DeviceRange> to(size);
      std::vector<DeviceRange> from(size);
      for (uint32_t r = 0; r < size; ++r) {
        if (r == control.rank()) {
          continue;
        }
        std::vector<std::byte> bytes(bytes_of(round, control.rank(), r));
        for (uint64_t i = 0; i < bytes.size(); ++i) {
          bytes[i] = value_of(round, control.rank(), r, i);
        }
        memory.push_back(device_range(bytes.size(), device));
        to[r] = memory.back().range;
        GEAR_CUDA_TRY(cudaMemcpy(to[r].data, bytes.data(), bytes.size(), cudaMemcpyDefault));
        memory.push_back(device_range(bytes_of(round, r, control.rank()), device));
        from[r] = memory.back().range;
      }
      GEAR_CUDA_TRY(cudaDeviceSynchronize());
      nccl->alltoallv(to, from, reinterpret_cast<uintptr_t>(static_cast<cudaStream_t>(stream)));
      for (uint32_t r = 0; r < size; ++r) {
        const auto received = gear::tests::from_device(from[r].data, from[r].bytes, stream);
        for (uint64_t i = 0; i < received.size(); ++i) {
          if (received[i] == value_of(round, r, control.rank(), i)) {
            continue;
          }
          throw gear::base::TransportError(
              gear::base::cat("round ", round, ", from ", r, ": byte ", i));
        }
      }
      nccl->check();
    }
  });
  CHECK(thrown == std::vector<std::string>(size));
}

TEST_CASE("two ranks on one GPU are refused on both") {
  const auto thrown = on_ranks(2, 20, [](Transport& control) { make_nccl(control, 0); });
  for (const std::string& one : thrown) {
    CHECK(one.find("ranks 0 and 1 are on one GPU") != std::string::npos);
  }
}

TEST_CASE("a rank that does not take part ends the wait of the others") {
  if (gear::base::device_count() < 2) {
    MESSAGE("skipped: one GPU");
    return;
  }
  constexpr double kTimeout = 4;
  const auto thrown = on_ranks(2, kTimeout, [](Transport& control) {
    const auto device = static_cast<int>(control.rank());
    const auto nccl = make_nccl(control, device);
    const gear::base::OnDevice on(device);
    if (control.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::duration<double>(2 * kTimeout));
      return;
    }
    const gear::base::Stream stream(device);
    const gear::base::DeviceArray<std::byte> memory(2 << 20, device);
    const std::vector<DeviceRange> to = {{}, {memory.get(), 1 << 20}};
    const std::vector<DeviceRange> from = {{}, {memory.get() + (1 << 20), 1 << 20}};
    const auto start = std::chrono::steady_clock::now();
    nccl->alltoallv(to, from, reinterpret_cast<uintptr_t>(static_cast<cudaStream_t>(stream)));
    stream.synchronize();  // ends by the abort
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    CHECK(waited.count() < 1.5 * kTimeout);
    nccl->check();
  });
  CHECK(thrown[0].find("longer than 4 s") != std::string::npos);
  CHECK(thrown[1].empty());
}
