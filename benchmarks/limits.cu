// What the raw hardware gives, as JSON lines: the best flat gather kernel of each row size out of
// device and pinned memory, and the copy engine. No part of GEAR is in here.
//
//   nvcc -std=c++17 -O3 -arch=sm_90 -o limits benchmarks/limits.cu && ./limits [--quick]
//        [--device-mib 4096] [--host-mib 8192] [--batch-mib 256]
//
// gb_per_s counts delivered bytes once (a copy inside the device reads and writes as many again).
#include "limits_gather.cuh"

using namespace limits;

namespace {

__global__ void nothing() {}

struct Sizes {
  uint64_t device = uint64_t{4096} << 20;
  uint64_t host = uint64_t{8192} << 20;
  uint64_t batch = uint64_t{256} << 20;
  int repeats = 5;
};

// What is worth trying. Few blocks are enough for the link, and random small rows take long.
std::vector<Variant> variants(bool over_link, bool random) {
  std::vector<Variant> found;
  const std::vector<int> unrolls = !over_link ? std::vector{1, 2, 4, 8} : std::vector{1, 4};
  for (const int unroll : unrolls) {
    for (const bool streaming : {false, true}) {
      for (const unsigned blocks : {0U, 32U, 64U, 132U, 264U}) {
        if (blocks != 0 && !over_link) {
          continue;
        }
        if (random && over_link && (unroll == 1 || (blocks != 0 && blocks != 64))) {
          continue;
        }
        found.push_back({unroll, streaming, blocks});
      }
    }
  }
  return found;
}

// Time a launch takes of a stream that is kept full, and of a graph of three launches.
void measure_launches(Timer& timer) {
  constexpr int kLaunches = 1000;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < 3; ++i) {
    nothing<<<1, 32, 0, stream>>>();
  }
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&replay, graph, 0));
  const double one = timer.us(5, [&](int) {
    for (int i = 0; i < kLaunches; ++i) {
      nothing<<<1, 32>>>();
    }
  });
  const double three = timer.us(5, [&](int) {
    for (int i = 0; i < kLaunches; ++i) {
      CHECK(cudaGraphLaunch(replay, nullptr));
    }
  });
  std::printf("{\"what\": \"launch\", \"us\": %.3f}\n", one / kLaunches);
  std::printf("{\"what\": \"graph_of_three\", \"us\": %.3f}\n", three / kLaunches);
  CHECK(cudaGraphExecDestroy(replay));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
}

void print_machine(const Sizes& sizes) {
  cudaDeviceProp properties{};
  int driver = 0;
  int runtime = 0;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaRuntimeGetVersion(&runtime));
  std::printf(
      "{\"what\": \"machine\", \"gpu\": \"%s\", \"multiprocessors\": %d, \"l2_bytes\": %d, "
      "\"memory_bytes\": %llu, \"driver\": %d, \"runtime\": %d, \"device_pool_bytes\": %llu, "
      "\"host_pool_bytes\": %llu}\n",
      properties.name, properties.multiProcessorCount, properties.l2CacheSize,
      static_cast<unsigned long long>(properties.totalGlobalMem), driver, runtime,
      static_cast<unsigned long long>(sizes.device), static_cast<unsigned long long>(sizes.host));
  std::fflush(stdout);
}

Sizes parse(int argc, char** argv) {
  Sizes sizes;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--quick") {
      sizes = {uint64_t{256} << 20, uint64_t{256} << 20, uint64_t{16} << 20, 2};
      continue;
    }
    const uint64_t mib = i + 1 < argc ? std::strtoull(argv[i + 1], nullptr, 10) : 0;
    uint64_t* const value = name == "--device-mib"  ? &sizes.device
                            : name == "--host-mib"  ? &sizes.host
                            : name == "--batch-mib" ? &sizes.batch
                                                    : nullptr;
    if (value == nullptr || mib == 0) {
      std::fprintf(stderr,
                   "limits: %s: --quick, --device-mib N, --host-mib N and --batch-mib N are "
                   "allowed\n",
                   argv[i]);
      std::exit(2);
    }
    *value = mib << 20;
    ++i;
  }
  return sizes;
}

}  // namespace

int main(int argc, char** argv) {
  const Sizes sizes = parse(argc, argv);
  print_machine(sizes);
  Timer timer;
  measure_launches(timer);

  void* device = nullptr;
  void* target = nullptr;
  CHECK(cudaMalloc(&device, sizes.device));
  CHECK(cudaMalloc(&target, sizes.batch));
  fill<<<2048, kThreads>>>(static_cast<uint64_t*>(device), sizes.device / 8);
  CHECK(cudaDeviceSynchronize());
  for (uint64_t bytes = uint64_t{1} << 20; bytes <= sizes.batch; bytes <<= 2) {
    measure_copy(timer, "device_copy", target, device, bytes, sizes.repeats);
  }
  const uint64_t row_sizes[] = {44, 64, 68, 128, 256, 512, 1024, 4096, 16384, 65536, 1 << 20};
  const Pool in_device{"device_gather", device, sizes.device, variants(false, true)};
  for (const uint64_t row : row_sizes) {
    measure_gather(timer, in_device, "random", row, sizes.batch, target, sizes.repeats);
  }

  void* host = nullptr;
  void* mapped = nullptr;
  CHECK(cudaHostAlloc(&host, sizes.host, cudaHostAllocMapped | cudaHostAllocPortable));
  CHECK(cudaHostGetDevicePointer(&mapped, host, 0));
  for (uint64_t at = 0; at < sizes.host; at += sizes.device) {
    CHECK(cudaMemcpy(static_cast<char*>(host) + at, device, std::min(sizes.device, sizes.host - at),
                     cudaMemcpyDefault));
  }
  for (uint64_t bytes = uint64_t{1} << 16; bytes <= sizes.batch; bytes <<= 2) {
    measure_copy(timer, "host_to_device", target, host, bytes, sizes.repeats);
    measure_copy(timer, "device_to_host", host, target, bytes, sizes.repeats);
  }
  CHECK(cudaMemcpy(host, device, std::min(sizes.batch, sizes.device), cudaMemcpyDefault));
  for (const uint64_t row : row_sizes) {
    for (const char* order : {"random", "sorted"}) {
      const bool random = std::strcmp(order, "random") == 0;
      const Pool in_host{"zero_copy", mapped, sizes.host, variants(true, random)};
      measure_gather(timer, in_host, order, row, sizes.batch / 4, target, 3);
      measure_gather(timer, in_host, order, row, sizes.batch, target, 3);
    }
  }
  CHECK(cudaFreeHost(host));
  CHECK(cudaFree(target));
  CHECK(cudaFree(device));
  return 0;
}
