// What the programs of raw limits share: the best flat gather kernel, its variants, and the clock.
#pragma once

#include <cuda_runtime.h>

#include <cub/device/device_radix_sort.cuh>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define CHECK(call)                                                      \
  do {                                                                   \
    const cudaError_t status = (call);                                   \
    if (status != cudaSuccess) {                                         \
      std::fprintf(stderr, "limits: line %d: %s: %s\n", __LINE__, #call, \
                   cudaGetErrorString(status));                          \
      std::exit(1);                                                      \
    }                                                                    \
  } while (0)

namespace limits {

constexpr int kThreads = 256;
// Index sets in turn: the GPU's cache keeps rows of host memory too, and what a launch reads must
// not lie there from a launch before.
constexpr int kSets = 8;

__host__ __device__ inline uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

static __global__ void fill(uint64_t* words, uint64_t count) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count;
       i += uint64_t{gridDim.x} * blockDim.x) {
    words[i] = mix(i);
  }
}

static __global__ void draw(uint32_t* rows, uint64_t count, uint64_t pool_rows, uint64_t seed) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count;
       i += uint64_t{gridDim.x} * blockDim.x) {
    rows[i] = static_cast<uint32_t>(mix(seed << 40 | i) % pool_rows);
  }
}

template <bool kStreaming, class Vector>
__device__ Vector load(const Vector* from) {
  if constexpr (kStreaming) {
    return __ldcs(from);
  }
  return __ldg(from);
}

// Vector v of the output is vector v % width of row rows[v / width]. kUnroll loads in flight a
// thread. width is a power of two, 1 << shift, or kWidth where that is not 0.
template <class Vector, int kUnroll, int kWidth, bool kStreaming>
__global__ void __launch_bounds__(kThreads)
    gather(const Vector* __restrict__ source, Vector* __restrict__ target,
           const uint32_t* __restrict__ rows, uint32_t shift, uint64_t vectors) {
  constexpr uint64_t kTile = uint64_t{kThreads} * kUnroll;
  for (uint64_t tile = blockIdx.x * kTile; tile < vectors; tile += gridDim.x * kTile) {
    const uint64_t first = tile + threadIdx.x;
    Vector loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const uint64_t v = first + uint64_t{kThreads} * u;
      if (v >= vectors) {
        continue;
      }
      if constexpr (kWidth == 0) {
        const uint64_t row = rows[v >> shift];
        const uint64_t within = v & ((uint64_t{1} << shift) - 1);
        loaded[u] = load<kStreaming>(source + ((row << shift) | within));
      } else {
        const auto small = static_cast<uint32_t>(v);
        const uint64_t row = rows[small / kWidth];
        loaded[u] = load<kStreaming>(source + row * kWidth + small % kWidth);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const uint64_t v = first + uint64_t{kThreads} * u;
      if (v < vectors) {
        __stcs(target + v, loaded[u]);
      }
    }
  }
}

static __global__ void count_wrong(const uint32_t* source, const uint32_t* target,
                                   const uint32_t* rows, uint64_t row_words, uint64_t words,
                                   unsigned long long* wrong) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < words;
       i += uint64_t{gridDim.x} * blockDim.x) {
    if (source[rows[i / row_words] * row_words + i % row_words] != target[i]) {
      atomicAdd(wrong, 1);
    }
  }
}

struct Timer {
  cudaEvent_t begin, end;
  Timer() {
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
  }

  // Median microseconds of `repeats` calls of work(number), after one more to warm up.
  template <class Work>
  double us(int repeats, Work work) {
    std::vector<float> times;
    for (int i = 0; i <= repeats; ++i) {
      CHECK(cudaEventRecord(begin));
      work(i);
      CHECK(cudaEventRecord(end));
      CHECK(cudaEventSynchronize(end));
      CHECK(cudaGetLastError());
      float ms = 0;
      CHECK(cudaEventElapsedTime(&ms, begin, end));
      if (i > 0) {
        times.push_back(ms * 1e3F);
      }
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
};

// A way to launch the kernel.
struct Variant {
  int unroll;
  bool streaming;   // loads that do not stay in the caches
  unsigned blocks;  // at most; 0: one for every tile
};

struct Pool {
  const char* what;
  const void* data;  // as the device sees it
  uint64_t bytes;
  std::vector<Variant> variants;  // worth trying
};

template <class Vector, int kWidth, bool kStreaming>
void launch_unrolled(const Variant& variant, const void* source, void* target, const uint32_t* rows,
                     uint32_t shift, uint64_t vectors) {
  const auto run = [&](auto kernel) {
    const uint64_t tile = uint64_t{kThreads} * static_cast<uint64_t>(variant.unroll);
    auto blocks = static_cast<unsigned>((vectors + tile - 1) / tile);
    if (variant.blocks != 0) {
      blocks = std::min(blocks, variant.blocks);
    }
    kernel<<<blocks, kThreads>>>(static_cast<const Vector*>(source), static_cast<Vector*>(target),
                                 rows, shift, vectors);
  };
  if (variant.unroll == 1) {
    run(gather<Vector, 1, kWidth, kStreaming>);
  }
  if (variant.unroll == 2) {
    run(gather<Vector, 2, kWidth, kStreaming>);
  }
  if (variant.unroll == 4) {
    run(gather<Vector, 4, kWidth, kStreaming>);
  }
  if (variant.unroll == 8) {
    run(gather<Vector, 8, kWidth, kStreaming>);
  }
}

template <bool kStreaming>
void launch(const Variant& variant, uint64_t row_bytes, const void* source, void* target,
            const uint32_t* rows, uint64_t bytes) {
  uint32_t shift = 0;
  while ((uint64_t{16} << shift) < row_bytes) {
    ++shift;
  }
  if (row_bytes == 44) {
    launch_unrolled<uint32_t, 11, kStreaming>(variant, source, target, rows, 0, bytes / 4);
  } else if (row_bytes == 68) {
    launch_unrolled<uint32_t, 17, kStreaming>(variant, source, target, rows, 0, bytes / 4);
  } else {  // a power of two of 16 and more
    launch_unrolled<uint4, 0, kStreaming>(variant, source, target, rows, shift, bytes / 16);
  }
}

// kSets times `count` random rows of the pool.
inline uint32_t* make_rows(uint64_t count, uint64_t pool_rows, bool sorted) {
  uint32_t* rows = nullptr;
  CHECK(cudaMalloc(&rows, count * kSets * sizeof(uint32_t)));
  if (!sorted) {
    draw<<<1024, kThreads>>>(rows, count * kSets, pool_rows, 0);
    CHECK(cudaGetLastError());
    return rows;
  }
  uint32_t* drawn = nullptr;
  void* scratch = nullptr;
  size_t scratch_bytes = 0;
  CHECK(cub::DeviceRadixSort::SortKeys(nullptr, scratch_bytes, drawn, rows, count));
  CHECK(cudaMalloc(&drawn, count * sizeof(uint32_t)));
  CHECK(cudaMalloc(&scratch, scratch_bytes));
  for (int set = 0; set < kSets; ++set) {
    draw<<<1024, kThreads>>>(drawn, count, pool_rows, set + 1);
    CHECK(cudaGetLastError());
    CHECK(cub::DeviceRadixSort::SortKeys(scratch, scratch_bytes, drawn, rows + count * set, count));
  }
  CHECK(cudaFree(scratch));
  CHECK(cudaFree(drawn));
  return rows;
}

// Times every variant over random rows of the pool, prints the best and returns it.
inline Variant measure_gather(Timer& timer, const Pool& pool, const char* order, uint64_t row_bytes,
                              uint64_t batch_bytes, void* target, int repeats) {
  const uint64_t count = batch_bytes / row_bytes;
  const uint64_t bytes = count * row_bytes;
  const uint64_t pool_rows = pool.bytes / row_bytes;
  const bool sorted = std::strcmp(order, "sorted") == 0;
  if (count == 0 || pool_rows < count) {
    return {};
  }
  uint32_t* const rows = make_rows(count, pool_rows, sorted);
  double best_us = 0;
  Variant best{};
  std::string all;  // "<unroll>[s] x <blocks>": us
  uint64_t turn = 0;
  CHECK(cudaMemset(target, 0xa5, bytes));
  for (const Variant& variant : pool.variants) {
    const double us = timer.us(repeats, [&](int) {
      const uint32_t* const set = rows + count * (++turn % kSets);
      const auto run = variant.streaming ? launch<true> : launch<false>;
      run(variant, row_bytes, pool.data, target, set, bytes);
    });
    all += (all.empty() ? "\"" : ", \"") + std::to_string(variant.unroll) +
           (variant.streaming ? "s x " : " x ") + std::to_string(variant.blocks) +
           "\": " + std::to_string(static_cast<int64_t>(us));
    if (best.unroll != 0 && us >= best_us) {
      continue;
    }
    best_us = us;
    best = variant;
  }
  unsigned long long* wrong = nullptr;
  unsigned long long found = 0;
  CHECK(cudaMalloc(&wrong, sizeof(*wrong)));
  CHECK(cudaMemset(wrong, 0, sizeof(*wrong)));
  count_wrong<<<1024, kThreads>>>(static_cast<const uint32_t*>(pool.data),
                                  static_cast<const uint32_t*>(target),
                                  rows + count * (turn % kSets), row_bytes / 4, bytes / 4, wrong);
  CHECK(cudaMemcpy(&found, wrong, sizeof(found), cudaMemcpyDefault));
  if (found != 0) {
    std::fprintf(stderr, "limits: %s of %llu-byte rows: %llu wrong words\n", pool.what,
                 static_cast<unsigned long long>(row_bytes), found);
    std::exit(1);
  }
  std::printf(
      "{\"what\": \"%s\", \"order\": \"%s\", \"row_bytes\": %llu, \"batch_bytes\": %llu, "
      "\"us\": %.2f, \"gb_per_s\": %.2f, \"unroll\": %d, \"streaming\": %s, \"blocks\": %u, "
      "\"all_us\": {%s}}\n",
      pool.what, order, static_cast<unsigned long long>(row_bytes),
      static_cast<unsigned long long>(bytes), best_us, static_cast<double>(bytes) / best_us * 1e-3,
      best.unroll, best.streaming ? "true" : "false", best.blocks, all.c_str());
  std::fflush(stdout);
  CHECK(cudaFree(wrong));
  CHECK(cudaFree(rows));
  return best;
}

inline void measure_copy(Timer& timer, const char* what, void* target, const void* source,
                         uint64_t bytes, int repeats) {
  const double us = timer.us(
      repeats, [&](int) { CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault)); });
  std::printf("{\"what\": \"%s\", \"batch_bytes\": %llu, \"us\": %.2f, \"gb_per_s\": %.2f}\n", what,
              static_cast<unsigned long long>(bytes), us, static_cast<double>(bytes) / us * 1e-3);
  std::fflush(stdout);
}

}  // namespace limits
