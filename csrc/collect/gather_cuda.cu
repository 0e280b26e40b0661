#include <algorithm>
#include <type_traits>

#include "base/divider.h"
#include "base/errors.h"
#include "collect/cast.h"
#include "collect/gather_cuda.h"

namespace gear::collect {
namespace {

using store::kNone;

constexpr uint32_t kThreads = 256;
constexpr uint32_t kOutputsPerLaunch = 32;  // keeps the parameters of a kernel below 4 KiB
// Vectors that a thread loads before it stores the first.
constexpr uint32_t kVectors = 4;
// In address order, neighbouring rows should be asked for by neighbouring blocks at one time.
constexpr uint32_t kOrderedVectors = 1;
// PCIe 5 is full with 130 KB in flight (51 GB/s times 2.5 us): few blocks of four vectors a thread
// do it, and leave the multiprocessors to the training step.
constexpr uint32_t kBlocksFromHost = 64;

// How the elements of a vector are moved: a conversion, and how many elements at a time. Plain
// moves count bytes.
struct Variant {
  Cast cast;
  uint8_t elements;
};

constexpr uint32_t source_bytes(Cast cast) {
  return cast == Cast::kF32ToF16 || cast == Cast::kF32ToBF16 ? 4 : 1;
}
constexpr uint32_t target_bytes(Cast cast) {
  return cast == Cast::kNone ? 1 : cast == Cast::kU8ToF32 ? 4 : 2;
}

// Whose vectors are 16 bytes or less on both sides.
constexpr uint32_t most_elements(Cast cast) {
  return 16 / std::max(source_bytes(cast), target_bytes(cast));
}

// One output. A tile is the rows or the part of a row that a block moves at a time:
//
//   narrow rows   [row 0 | row 1 | ... | row tile_rows - 1]      vectors of one tile
//   wide rows     [part 0 of row 0][part 1 of row 0] ...         row_parts to a row
struct OutputMove {
  const uint32_t* slots;
  const uint32_t* order;
  const int32_t* filled;  // packed and not ordered: how many rows there are; null: num_rows
  uint64_t column_offset;
  uint64_t data;  // in a block
  uint32_t num_rows;
  uint32_t first_tile;
  uint32_t row_vectors;
  uint32_t tile_rows;        // 0: wide rows
  uint32_t part_vectors;     // of a wide row
  base::Divider divider;     // narrow: by row_vectors; wide: by row_parts
  base::Divider block_rows;  // of a full block
  float scale;
  Variant variant;
};

struct GatherParameters {
  const std::byte* pages;
  uint64_t page_bytes;
  base::Divider page_steps;
  std::byte* blocks[GatherCuda::kMostBlocks];
  uint32_t num_outputs;
  uint32_t num_tiles;
  bool padded;  // rows that are not there are zeros
  OutputMove outputs[kOutputsPerLaunch];
};
static_assert(sizeof(GatherParameters) <= 4096, "more needs a newer compiler and driver");

template <uint32_t kBytes>
using Bits = std::conditional_t<
    kBytes == 16, uint4,
    std::conditional_t<kBytes == 8, uint2,
                       std::conditional_t<kBytes == 4, uint32_t,
                                          std::conditional_t<kBytes == 2, uint16_t, uint8_t>>>>;

// What is at `address`, or zero without a look there. Predicated by hand: as a branch, it would
// stand between the loads of a thread and the next ones. Rows are read once, so that whole 16 bytes
// need not push anything out of the L1 cache; narrower loads share sectors with their neighbours.
template <class T>
__device__ T load_if(bool wanted, const std::byte* address) {
  const auto flag = static_cast<int>(wanted);
  if constexpr (sizeof(T) == 16) {
    T value{};
    asm("{ .reg .pred p; setp.ne.s32 p, %5, 0;"
        "  @p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w)
        : "l"(address), "r"(flag));
    return value;
  } else if constexpr (sizeof(T) == 8) {
    T value{};
    asm("{ .reg .pred p; setp.ne.s32 p, %3, 0; @p ld.global.nc.v2.u32 {%0, %1}, [%2]; }"
        : "+r"(value.x), "+r"(value.y)
        : "l"(address), "r"(flag));
    return value;
  } else {
    uint32_t value = 0;
    if constexpr (sizeof(T) == 4) {
      asm("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p ld.global.nc.u32 %0, [%1]; }"
          : "+r"(value)
          : "l"(address), "r"(flag));
    } else if constexpr (sizeof(T) == 2) {
      asm("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p ld.global.nc.u16 %0, [%1]; }"
          : "+r"(value)
          : "l"(address), "r"(flag));
    } else {
      asm("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p ld.global.nc.u8 %0, [%1]; }"
          : "+r"(value)
          : "l"(address), "r"(flag));
    }
    return static_cast<T>(value);
  }
}

// A copy of a parameter in a register: the compiler would read it again for every vector.
template <class T>
__device__ T in_register(T value) {
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(value));
  } else {
    asm volatile("" : "+r"(value));
  }
  return value;
}

// In address order rows come from host memory and each line of them is read once: marked to be
// evicted first on both sides, whole 16 bytes pass the caches at up to twice the speed (H200, 64
// MiB of 64-byte rows). Either side alone gains nothing.
template <bool kStreamed, class T>
__device__ T load_row(bool wanted, const std::byte* address) {
  if constexpr (kStreamed && sizeof(T) == 16) {
    return wanted ? __ldcs(reinterpret_cast<const T*>(address)) : T{};
  } else {
    return load_if<T>(wanted, address);
  }
}

template <bool kStreamed, class T>
__device__ void store_row(T* target, const T& value) {
  if constexpr (kStreamed && sizeof(T) == 16) {
    __stcs(target, value);
  } else {
    *target = value;
  }
}

template <bool kOrdered, Cast kCast, uint32_t kElements>
struct Mover {
  static constexpr uint32_t kInFlight = kOrdered ? kOrderedVectors : kVectors;
  using Source = Bits<kElements * source_bytes(kCast)>;
  using Target = Bits<kElements * target_bytes(kCast)>;

  static __device__ Target convert(const Source& source, float scale) {
    if constexpr (kCast == Cast::kNone) {
      return source;
    } else {
      Target target;
#pragma unroll
      for (uint32_t i = 0; i < kElements; ++i) {
        cast_value<kCast>(reinterpret_cast<const uint8_t*>(&source) + i * source_bytes(kCast),
                          reinterpret_cast<uint8_t*>(&target) + i * target_bytes(kCast), scale);
      }
      return target;
    }
  }

  static __device__ void move(const GatherParameters& job, const OutputMove& output,
                              uint32_t tile) {
    const bool narrow = output.tile_rows > 0;
    const uint32_t row_vectors = in_register(output.row_vectors);
    uint32_t first_row;
    uint32_t begin = 0;  // of the tile in a wide row
    uint32_t vectors;
    if (narrow) {
      first_row = tile * output.tile_rows;
      vectors = output.tile_rows * row_vectors;
    } else {
      first_row = output.divider.divide(tile);
      begin = output.divider.remainder(tile, first_row) * output.part_vectors;
      vectors = min(output.part_vectors, row_vectors - begin);
    }
    const uint32_t num_rows =
        output.filled == nullptr ? output.num_rows : static_cast<uint32_t>(*output.filled);
    if (first_row >= num_rows) return;
    uint32_t row[kInFlight];
    uint32_t vector[kInFlight];
    uint32_t slot[kInFlight];
    bool active[kInFlight];
    const uint32_t* slots = in_register(output.slots);
#pragma unroll
    for (uint32_t k = 0; k < kInFlight; ++k) {
      const uint32_t i = k * kThreads + threadIdx.x;
      const uint32_t ahead = narrow ? output.divider.divide(i) : 0;
      row[k] = first_row + ahead;
      vector[k] = begin + i - ahead * row_vectors;
      active[k] = i < vectors && row[k] < num_rows;
      slot[k] = active[k] ? __ldg(slots + row[k]) : kNone;
    }
    if constexpr (kOrdered) {
      const uint32_t* order = in_register(output.order);
#pragma unroll
      for (uint32_t k = 0; k < kInFlight; ++k) {
        if (active[k]) row[k] = __ldg(order + row[k]);
      }
    }
    const std::byte* source = in_register(job.pages + output.column_offset);
    const uint64_t page_bytes = in_register(job.page_bytes);
    Source value[kInFlight];
#pragma unroll
    for (uint32_t k = 0; k < kInFlight; ++k) {
      const uint32_t page = job.page_steps.divide(slot[k]);
      const uint64_t in_column =
          uint64_t{job.page_steps.remainder(slot[k], page)} * row_vectors + vector[k];
      value[k] = load_row<kOrdered, Source>(
          slot[k] != kNone, source + page * page_bytes + in_column * sizeof(Source));
    }
    std::byte* block = in_register(job.blocks[0]);
#pragma unroll
    for (uint32_t k = 0; k < kInFlight; ++k) {
      if (!active[k]) continue;
      if constexpr (kOrdered) {
        if (slot[k] == kNone && !job.padded) continue;
        const uint32_t number = output.block_rows.divide(row[k]);
        row[k] = output.block_rows.remainder(row[k], number);
        block = job.blocks[number];
      }
      Target moved = convert(value[k], output.scale);
      // A zero that is converted may have a sign.
      if (kCast != Cast::kNone && slot[k] == kNone) moved = Target{};
      auto* target = reinterpret_cast<Target*>(block + output.data);
      store_row<kOrdered>(target + uint64_t{row[k]} * row_vectors + vector[k], moved);
    }
  }
};

template <bool kOrdered, Cast kCast>
__device__ void move_cast(const GatherParameters& job, const OutputMove& output, uint32_t tile) {
  constexpr uint32_t kMost = most_elements(kCast);
  switch (output.variant.elements) {
    case 16:
      if constexpr (kMost >= 16) return Mover<kOrdered, kCast, 16>::move(job, output, tile);
      break;
    case 8:
      if constexpr (kMost >= 8) return Mover<kOrdered, kCast, 8>::move(job, output, tile);
      break;
    case 4:
      return Mover<kOrdered, kCast, 4>::move(job, output, tile);
    case 2:
      return Mover<kOrdered, kCast, 2>::move(job, output, tile);
    default:
      return Mover<kOrdered, kCast, 1>::move(job, output, tile);
  }
}

template <bool kOrdered>
__global__ void __launch_bounds__(kThreads)
    gather_rows(const __grid_constant__ GatherParameters job) {
  for (uint32_t tile = blockIdx.x; tile < job.num_tiles; tile += gridDim.x) {
    uint32_t o = 0;
    while (o + 1 < job.num_outputs && job.outputs[o + 1].first_tile <= tile) ++o;
    const OutputMove& output = job.outputs[o];
    const uint32_t own = tile - output.first_tile;
    switch (output.variant.cast) {
      case Cast::kNone:
        move_cast<kOrdered, Cast::kNone>(job, output, own);
        break;
      case Cast::kU8ToF16:
        move_cast<kOrdered, Cast::kU8ToF16>(job, output, own);
        break;
      case Cast::kU8ToBF16:
        move_cast<kOrdered, Cast::kU8ToBF16>(job, output, own);
        break;
      case Cast::kU8ToF32:
        move_cast<kOrdered, Cast::kU8ToF32>(job, output, own);
        break;
      case Cast::kF32ToF16:
        move_cast<kOrdered, Cast::kF32ToF16>(job, output, own);
        break;
      case Cast::kF32ToBF16:
        move_cast<kOrdered, Cast::kF32ToBF16>(job, output, own);
        break;
    }
  }
}

// The largest power of two, up to `most`, that divides `count`.
uint32_t vector_elements(uint64_t count, uint32_t most) {
  uint32_t elements = most;
  while (count % elements != 0) elements /= 2;
  return elements;
}

// What does not change from batch to batch. `tile`: vectors that a block moves at a time.
OutputMove describe(const BatchLayout& layout, const store::PageLayout& pages, size_t o,
                    uint32_t tile) {
  const size_t column = layout.outputs[o].column;
  const Cast cast = layout.casts[o];
  const uint64_t row_elements = pages.step_bytes[column] / source_bytes(cast);
  const uint32_t elements = vector_elements(row_elements, most_elements(cast));
  OutputMove output{};
  output.column_offset = pages.column_offset[column];
  output.row_vectors = static_cast<uint32_t>(row_elements / elements);
  if (output.row_vectors <= tile) {
    output.tile_rows = tile / output.row_vectors;
    output.divider = base::Divider(output.row_vectors);
  } else {
    const uint32_t parts = (output.row_vectors - 1) / tile + 1;
    // Whole warps, so that every row of 16-byte vectors is cut where a line of memory begins.
    output.part_vectors = ((output.row_vectors - 1) / parts / 32 + 1) * 32;
    output.divider = base::Divider(parts);
  }
  output.data = layout.data[o];
  output.block_rows =
      base::Divider(static_cast<uint32_t>(layout.batch_size * layout.outputs[o].length()));
  output.scale = layout.outputs[o].scale;
  output.variant = {cast, static_cast<uint8_t>(elements)};
  return output;
}

// Tiles of an output of `rows` rows.
uint64_t count_tiles(const OutputMove& output, uint64_t rows) {
  if (output.tile_rows == 0) return rows * output.divider.divisor();
  return (rows + output.tile_rows - 1) / output.tile_rows;
}

}  // namespace

struct GatherCuda::Table {
  GatherParameters parameters;
  size_t first_output;
};

GatherCuda::GatherCuda(GatherSource source, std::shared_ptr<const BatchLayout> layout,
                       const store::PageLayout& pages, bool ordered, int device)
    : layout_(std::move(layout)),
      device_(device),
      ordered_(ordered),
      most_blocks_(source.from_host && !ordered ? kBlocksFromHost : UINT32_MAX) {
  GEAR_CHECK(source.pages != nullptr && reinterpret_cast<uintptr_t>(source.pages) % 64 == 0);
  const uint32_t tile = kThreads * (ordered_ ? kOrderedVectors : kVectors);
  const size_t num_outputs = layout_->outputs.size();
  for (size_t begin = 0; begin < num_outputs; begin += kOutputsPerLaunch) {
    Table table{{}, begin};
    table.parameters.pages = source.pages;
    table.parameters.page_bytes = pages.page_bytes;
    table.parameters.page_steps = base::Divider(static_cast<uint32_t>(pages.page_steps));
    table.parameters.padded = !layout_->packed;
    const size_t end = std::min<size_t>(num_outputs, begin + kOutputsPerLaunch);
    table.parameters.num_outputs = static_cast<uint32_t>(end - begin);
    for (size_t o = begin; o < end; ++o) {
      table.parameters.outputs[o - begin] = describe(*layout_, pages, o, tile);
    }
    tables_.push_back(table);
  }
}

GatherCuda::~GatherCuda() = default;

void GatherCuda::launch(const std::vector<DeviceRows>& rows, uint64_t items,
                        std::span<std::byte* const> blocks, cudaStream_t stream) const {
  const size_t most_blocks = ordered_ ? kMostBlocks : 1;
  GEAR_CHECK(!blocks.empty() && blocks.size() <= most_blocks);
  GEAR_CHECK(items <= blocks.size() * layout_->batch_size);
  GEAR_CHECK(rows.size() == layout_->windows.size());
  if (items == 0) return;
  const base::OnDevice current(device_);
  for (const Table& table : tables_) {
    GatherParameters job = table.parameters;
    std::copy(blocks.begin(), blocks.end(), job.blocks);
    uint64_t tiles = 0;
    for (uint32_t i = 0; i < job.num_outputs; ++i) {
      const size_t o = table.first_output + i;
      const size_t w = layout_->window_of[o];
      OutputMove& output = job.outputs[i];
      output.slots = rows[w].slots;
      output.order = rows[w].order;
      output.num_rows = static_cast<uint32_t>(items * layout_->outputs[o].length());
      if (layout_->packed && !ordered_) {
        output.filled =
            reinterpret_cast<const int32_t*>(blocks[0] + layout_->windows[w].cu_seqlens) + items;
      }
      output.first_tile = static_cast<uint32_t>(tiles);
      tiles += count_tiles(output, output.num_rows);
    }
    GEAR_CHECK(tiles <= INT32_MAX);
    job.num_tiles = static_cast<uint32_t>(tiles);
    const uint32_t num_blocks = std::min(job.num_tiles, most_blocks_);
    if (ordered_) {
      gather_rows<true><<<num_blocks, kThreads, 0, stream>>>(job);
    } else {
      gather_rows<false><<<num_blocks, kThreads, 0, stream>>>(job);
    }
    GEAR_CUDA_TRY(cudaGetLastError());
  }
}

}  // namespace gear::collect
