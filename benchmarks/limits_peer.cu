// What the links between GPUs give, as JSON lines: the best flat gather kernel of each row size out
// of another GPU's memory by pointer, one reader alone and every GPU reading its neighbour at once.
// No part of GEAR is in here.
//
//   nvcc -std=c++17 -O3 -arch=sm_90 -o limits_peer benchmarks/limits_peer.cu && ./limits_peer
//        [--quick]
//
// gb_per_s counts delivered bytes once.
#include <sys/wait.h>
#include <unistd.h>

#include "limits_gather.cuh"

using namespace limits;

namespace {

// A GPU with a pool that its neighbour reads, and what it reads of its own neighbour into.
struct Gpu {
  void* pool = nullptr;
  void* target = nullptr;
  uint32_t* rows = nullptr;
  cudaEvent_t begin, end;
};

void make_gpu(Gpu& gpu, int device, int neighbour, uint64_t pool_bytes, uint64_t batch_bytes) {
  CHECK(cudaSetDevice(device));
  if (neighbour != device) {
    CHECK(cudaDeviceEnablePeerAccess(neighbour, 0));
  }
  CHECK(cudaMalloc(&gpu.pool, pool_bytes));
  CHECK(cudaMalloc(&gpu.target, batch_bytes));
  CHECK(cudaEventCreate(&gpu.begin));
  CHECK(cudaEventCreate(&gpu.end));
  fill<<<2048, kThreads>>>(static_cast<uint64_t*>(gpu.pool), pool_bytes / 8);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
}

// Another process with a pool on GPU 1, where there is one. Made before this one's first CUDA call.
class Owner {
 public:
  explicit Owner(uint64_t pool_bytes) {
    int ready[2];
    int done[2];
    if (pipe(ready) != 0 || pipe(done) != 0) {
      std::exit(1);
    }
    child_ = fork();
    if (child_ == 0) {
      close(done[1]);
      own(pool_bytes, ready[1], done[0]);
      _exit(0);
    }
    close(ready[1]);
    close(done[0]);
    ready_ = ready[0];
    done_ = done[1];
  }
  ~Owner() {
    close(done_);
    waitpid(child_, nullptr, 0);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  // Its pool, as the current GPU sees it.
  void* open() const {
    cudaIpcMemHandle_t handle;
    if (read(ready_, &handle, sizeof handle) != sizeof handle) {
      std::exit(1);
    }
    void* pool = nullptr;
    CHECK(cudaIpcOpenMemHandle(&pool, handle, cudaIpcMemLazyEnablePeerAccess));
    return pool;
  }

 private:
  static void own(uint64_t pool_bytes, int ready, int done) {
    int size = 0;
    CHECK(cudaGetDeviceCount(&size));
    CHECK(cudaSetDevice(1 % size));
    void* pool = nullptr;
    CHECK(cudaMalloc(&pool, pool_bytes));
    fill<<<2048, kThreads>>>(static_cast<uint64_t*>(pool), pool_bytes / 8);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    cudaIpcMemHandle_t handle;
    CHECK(cudaIpcGetMemHandle(&handle, pool));
    char end = 0;
    if (write(ready, &handle, sizeof handle) != sizeof handle) {
      return;
    }
    if (read(done, &end, 1) < 0) {
      return;  // returns when the reader closes its end
    }
  }

  pid_t child_ = -1;
  int ready_ = -1;
  int done_ = -1;
};

// Every GPU reads its neighbour, all at once, a few batches each.
void measure_all(std::vector<Gpu>& gpus, const Variant& variant, uint64_t row_bytes,
                 uint64_t pool_bytes, uint64_t batch_bytes) {
  constexpr int kBatches = 6;
  const uint64_t count = batch_bytes / row_bytes;
  const auto size = static_cast<int>(gpus.size());
  for (int g = 0; g < size; ++g) {
    CHECK(cudaSetDevice(g));
    gpus[g].rows = make_rows(count, pool_bytes / row_bytes, false);
    CHECK(cudaDeviceSynchronize());
  }
  const auto run = variant.streaming ? launch<true> : launch<false>;
  for (int batch = -1; batch < kBatches; ++batch) {
    for (int g = 0; g < size; ++g) {
      CHECK(cudaSetDevice(g));
      if (batch == 0) {
        CHECK(cudaEventRecord(gpus[g].begin));
      }
      run(variant, row_bytes, gpus[(g + 1) % size].pool, gpus[g].target,
          gpus[g].rows + count * static_cast<uint64_t>((batch + 1) % kSets), batch_bytes);
      CHECK(cudaGetLastError());
    }
  }
  double total = 0;
  for (int g = 0; g < size; ++g) {
    CHECK(cudaSetDevice(g));
    CHECK(cudaEventRecord(gpus[g].end));
    CHECK(cudaEventSynchronize(gpus[g].end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, gpus[g].begin, gpus[g].end));
    total += static_cast<double>(batch_bytes) * kBatches / ms * 1e-6;
    CHECK(cudaFree(gpus[g].rows));
  }
  CHECK(cudaSetDevice(0));
  std::printf(
      "{\"what\": \"all_peers_gather\", \"order\": \"random\", \"gpus\": %d, \"row_bytes\": %llu, "
      "\"batch_bytes\": %llu, \"gb_per_s\": %.2f, \"gb_per_s_each\": %.2f}\n",
      size, static_cast<unsigned long long>(row_bytes),
      static_cast<unsigned long long>(batch_bytes), total, total / size);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc == 2 && std::strcmp(argv[1], "--quick") == 0;
  if (argc > 1 && !quick) {
    std::fprintf(stderr, "limits_peer: %s: --quick is allowed\n", argv[1]);
    return 2;
  }
  const uint64_t pool_bytes = uint64_t{quick ? 256U : 2048U} << 20;
  const uint64_t batch_bytes = uint64_t{quick ? 16U : 256U} << 20;
  const Owner owner(pool_bytes);
  int size = 0;
  CHECK(cudaGetDeviceCount(&size));
  std::vector<Gpu> gpus(size);
  for (int g = 0; g < size; ++g) {
    make_gpu(gpus[g], g, (g + 1) % size, pool_bytes, batch_bytes);
  }
  CHECK(cudaSetDevice(0));
  Timer timer;
  std::vector<Variant> variants;
  for (const int unroll : {1, 4, 8}) {
    for (const bool streaming : {false, true}) {
      for (const unsigned blocks : {0U, 132U, 264U, 528U}) {
        variants.push_back({unroll, streaming, blocks});
      }
    }
  }
  const char* const what = size > 1 ? "peer_gather" : "device_gather";
  const Pool pool{what, gpus[1 % size].pool, pool_bytes, variants};
  measure_copy(timer, size > 1 ? "peer_copy" : "device_copy", gpus[0].target, pool.data,
               batch_bytes, 5);
  for (const uint64_t row : {64, 256, 1024, 4096, 16384}) {
    measure_gather(timer, pool, "random", row, batch_bytes / 16, gpus[0].target, 5);
    const Variant best = measure_gather(timer, pool, "random", row, batch_bytes, gpus[0].target, 5);
    measure_all(gpus, best, row, pool_bytes, batch_bytes);
  }
  const Pool other{size > 1 ? "peer_process_gather" : "process_gather", owner.open(), pool_bytes,
                   variants};
  for (const uint64_t row : {64, 256, 1024, 4096, 16384}) {
    measure_gather(timer, other, "random", row, batch_bytes, gpus[0].target, 5);
    if (row < 1024) {
      measure_gather(timer, other, "sorted", row, batch_bytes, gpus[0].target, 5);
    }
  }
  CHECK(cudaIpcCloseMemHandle(const_cast<void*>(other.data)));
  return 0;
}
