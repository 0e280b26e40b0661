#include <algorithm>
#include <type_traits>

#include "base/cuda/following.cuh"
#include "base/errors.h"
#include "gather/cuda/gather_rows.h"
#include "store/episode.h"

namespace gear::gather {
namespace {

using store::kNone;

constexpr uint32_t kThreads = 256;

// Vectors that a thread loads before it stores the first. In address order, neighbouring rows
// should be asked for by neighbouring blocks at one time.
constexpr uint32_t vectors_in_flight(RowForm form) { return form == RowForm::kAddressed ? 1 : 4; }

constexpr uint32_t source_bytes(plan::Cast cast) {
  return cast == plan::Cast::kF32ToF16 || cast == plan::Cast::kF32ToBF16 ? 4 : 1;
}
constexpr uint32_t target_bytes(plan::Cast cast) {
  return cast == plan::Cast::kNone ? 1 : cast == plan::Cast::kU8ToF32 ? 4 : 2;
}

// Whose vectors are 16 bytes or less on both sides.
constexpr uint32_t most_elements(plan::Cast cast) {
  return 16 / std::max(source_bytes(cast), target_bytes(cast));
}

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

template <RowForm kForm, plan::Cast kCast, uint32_t kElements>
struct Mover {
  static constexpr bool kAddressed = kForm == RowForm::kAddressed;
  static constexpr bool kNamesOwners = kAddressed || kForm == RowForm::kOwned;
  static constexpr uint32_t kInFlight = vectors_in_flight(kForm);
  using Source = Bits<kElements * source_bytes(kCast)>;
  using Target = Bits<kElements * target_bytes(kCast)>;

  static __device__ Target convert(const Source& source, float scale) {
    if constexpr (kCast == plan::Cast::kNone) {
      return source;
    } else {
      Target target;
#pragma unroll
      for (uint32_t i = 0; i < kElements; ++i) {
        plan::cast_value<kCast>(reinterpret_cast<const uint8_t*>(&source) + i * source_bytes(kCast),
                                reinterpret_cast<uint8_t*>(&target) + i * target_bytes(kCast),
                                scale);
      }
      return target;
    }
  }

  // One of the vectors that a thread moves.
  struct Vector {
    uint32_t row;   // of the list, then (where it names an order) of the batches
    uint32_t at;    // in the row, vectors
    uint32_t slot;  // that it comes from; kNone: none, it is zero
    bool moved;     // else it lies behind the end of the tile or of the list
  };

  // The i-th vector of a tile that has `vectors`, from vector `begin` of row `first_row` on.
  static __device__ Vector locate(const RowMove& output, uint32_t i, uint32_t first_row,
                                  uint32_t begin, uint32_t vectors, uint32_t row_vectors,
                                  uint32_t num_rows, const uint32_t* slots) {
    const uint32_t rows_on = output.tile_rows > 0 ? output.divider.divide(i) : 0;
    const uint32_t row = first_row + rows_on;
    const bool moved = i < vectors && row < num_rows;
    return {row, begin + i - rows_on * row_vectors, moved ? __ldg(slots + row) : kNone, moved};
  }

  static __device__ Source load(const RowJob& job, const Vector& vector, const std::byte* source,
                                uint64_t page_bytes, uint32_t row_vectors) {
    uint32_t slot = vector.slot;
    if constexpr (kNamesOwners) {
      const auto owner = static_cast<uint32_t>(uint64_t{slot} >> job.slot_bits);
      slot -= static_cast<uint32_t>(uint64_t{owner} << job.slot_bits);
      source += reinterpret_cast<uintptr_t>(job.sources[owner]);
    }
    const uint32_t page = job.page_steps.divide(slot);
    const uint64_t in_column =
        uint64_t{job.page_steps.remainder(slot, page)} * row_vectors + vector.at;
    return load_row<kAddressed, Source>(vector.slot != kNone,
                                        source + page * page_bytes + in_column * sizeof(Source));
  }

  // `block`: the first, which is all there is unless kAddressed.
  static __device__ void store(const RowJob& job, const RowMove& output, Vector vector,
                               const Source& value, std::byte* block, uint32_t row_vectors) {
    if constexpr (kAddressed) {
      if (vector.slot == kNone && !job.padded) {
        return;
      }
      const uint32_t number = output.block_rows.divide(vector.row);
      vector.row = output.block_rows.remainder(vector.row, number);
      block = job.blocks[number];
    }
    Target target = convert(value, output.scale);
    // A zero that is converted may have a sign.
    if (kCast != plan::Cast::kNone && vector.slot == kNone) {
      target = Target{};
    }
    auto* targets = reinterpret_cast<Target*>(block + output.data);
    store_row<kAddressed>(targets + uint64_t{vector.row} * row_vectors + vector.at, target);
  }

  // Four passes over the vectors of this thread, so that the loads of each are under way together:
  // where they come from, where they go, load, store.
  static __device__ void move(const RowJob& job, const RowMove& output, uint32_t tile) {
    const uint32_t row_vectors = in_register(output.row_vectors);
    uint32_t first_row = tile * output.tile_rows;
    uint32_t begin = 0;
    uint32_t vectors = output.tile_rows * row_vectors;
    if (output.tile_rows == 0) {  // a part of a wide row
      first_row = output.divider.divide(tile);
      begin = output.divider.remainder(tile, first_row) * output.part_vectors;
      vectors = min(output.part_vectors, row_vectors - begin);
    }
    const uint32_t num_rows =
        output.filled == nullptr ? output.num_rows : static_cast<uint32_t>(*output.filled);
    if (first_row >= num_rows) {
      return;
    }
    Vector vector[kInFlight];
    const uint32_t* slots = in_register(output.slots);
#pragma unroll
    for (uint32_t k = 0; k < kInFlight; ++k) {
      vector[k] = locate(output, k * kThreads + threadIdx.x, first_row, begin, vectors, row_vectors,
                         num_rows, slots);
    }
    if constexpr (kForm == RowForm::kAddressed || kForm == RowForm::kListed) {
      const uint32_t* order = in_register(output.order);
#pragma unroll
      for (uint32_t k = 0; k < kInFlight; ++k) {
        if (vector[k].moved) {
          vector[k].row = __ldg(order + vector[k].row);
        }
      }
    }
    const std::byte* source = in_register(output.source);
    const uint64_t page_bytes = in_register(job.page_bytes);
    Source value[kInFlight];
#pragma unroll
    for (uint32_t k = 0; k < kInFlight; ++k) {
      value[k] = load(job, vector[k], source, page_bytes, row_vectors);
    }
    std::byte* block = in_register(job.blocks[0]);
#pragma unroll
    for (uint32_t k = 0; k < kInFlight; ++k) {
      if (vector[k].moved) {
        store(job, output, vector[k], value[k], block, row_vectors);
      }
    }
  }
};

template <RowForm kForm, plan::Cast kCast>
__device__ void move_cast(const RowJob& job, const RowMove& output, uint32_t tile) {
  constexpr uint32_t kMost = most_elements(kCast);
  switch (output.elements) {
    case 16:
      if constexpr (kMost >= 16) {
        return Mover<kForm, kCast, 16>::move(job, output, tile);
      }
      break;
    case 8:
      if constexpr (kMost >= 8) {
        return Mover<kForm, kCast, 8>::move(job, output, tile);
      }
      break;
    case 4:
      return Mover<kForm, kCast, 4>::move(job, output, tile);
    case 2:
      return Mover<kForm, kCast, 2>::move(job, output, tile);
    default:
      return Mover<kForm, kCast, 1>::move(job, output, tile);
  }
}

// By all threads of every block, which have read what they will.
__device__ void set_mark(const ReadMark& mark) {
  __syncthreads();
  if (threadIdx.x != 0 || mark.word == nullptr || atomicAdd(mark.blocks_done, 1U) + 1 < gridDim.x) {
    return;
  }
  *mark.blocks_done = 0;
  *static_cast<volatile uint64_t*>(mark.word) = mark.value;
}

template <RowForm kForm>
__global__ void __launch_bounds__(kThreads) gather_rows(const __grid_constant__ RowJob job) {
  base::follow();
  base::let_next_in();
  for (uint32_t tile = blockIdx.x; tile < job.num_tiles; tile += gridDim.x) {
    uint32_t o = 0;
    while (o + 1 < job.num_moves && job.moves[o + 1].first_tile <= tile) {
      ++o;
    }
    const RowMove& output = job.moves[o];
    const uint32_t own = tile - output.first_tile;
    switch (output.cast) {
      case plan::Cast::kNone:
        move_cast<kForm, plan::Cast::kNone>(job, output, own);
        break;
      case plan::Cast::kU8ToF16:
        move_cast<kForm, plan::Cast::kU8ToF16>(job, output, own);
        break;
      case plan::Cast::kU8ToBF16:
        move_cast<kForm, plan::Cast::kU8ToBF16>(job, output, own);
        break;
      case plan::Cast::kU8ToF32:
        move_cast<kForm, plan::Cast::kU8ToF32>(job, output, own);
        break;
      case plan::Cast::kF32ToF16:
        move_cast<kForm, plan::Cast::kF32ToF16>(job, output, own);
        break;
      case plan::Cast::kF32ToBF16:
        move_cast<kForm, plan::Cast::kF32ToBF16>(job, output, own);
        break;
    }
  }
  if constexpr (kForm == RowForm::kOwned || kForm == RowForm::kAddressed) {
    set_mark(job.mark);
  }
}

// The largest power of two, up to `most`, that divides `count`.
uint32_t vector_elements(uint64_t count, uint32_t most) {
  uint32_t elements = most;
  while (count % elements != 0) {
    elements /= 2;
  }
  return elements;
}

// Tiles of `rows` rows.
uint64_t count_tiles(const RowMove& move, uint64_t rows) {
  if (move.tile_rows == 0) {
    return rows * move.divider.divisor();
  }
  return (rows + move.tile_rows - 1) / move.tile_rows;
}

}  // namespace

RowMove describe_move(uint64_t step_bytes, plan::Cast cast, float scale, RowForm form) {
  const uint32_t tile = kThreads * vectors_in_flight(form);
  const uint64_t row_elements = step_bytes / source_bytes(cast);
  const uint32_t elements = vector_elements(row_elements, most_elements(cast));
  RowMove move{};
  move.row_vectors = static_cast<uint32_t>(row_elements / elements);
  if (move.row_vectors <= tile) {
    move.tile_rows = tile / move.row_vectors;
    move.divider = base::Divider(move.row_vectors);
  } else {
    const uint32_t parts = (move.row_vectors - 1) / tile + 1;
    // Whole warps, so that every row of 16-byte vectors is cut where a line of memory begins.
    move.part_vectors = ((move.row_vectors - 1) / parts / 32 + 1) * 32;
    move.divider = base::Divider(parts);
  }
  move.scale = scale;
  move.cast = cast;
  move.elements = static_cast<uint8_t>(elements);
  return move;
}

void launch_rows(RowForm form, RowJob& job, uint32_t most_blocks, cudaStream_t stream) {
  uint64_t tiles = 0;
  for (uint32_t m = 0; m < job.num_moves; ++m) {
    RowMove& move = job.moves[m];
    move.first_tile = static_cast<uint32_t>(tiles);
    tiles += count_tiles(move, move.num_rows);
  }
  GEAR_CHECK(tiles <= INT32_MAX);
  if (tiles == 0) {
    return;
  }
  job.num_tiles = static_cast<uint32_t>(tiles);
  const uint32_t num_blocks = std::min(job.num_tiles, most_blocks);
  if (form == RowForm::kDelivered) {
    base::launch_following<gather_rows<RowForm::kDelivered>>(num_blocks, kThreads, stream, job);
  } else if (form == RowForm::kOwned) {
    base::launch_following<gather_rows<RowForm::kOwned>>(num_blocks, kThreads, stream, job);
  } else if (form == RowForm::kAddressed) {
    base::launch_following<gather_rows<RowForm::kAddressed>>(num_blocks, kThreads, stream, job);
  } else {
    base::launch_following<gather_rows<RowForm::kListed>>(num_blocks, kThreads, stream, job);
  }
}

}  // namespace gear::gather
