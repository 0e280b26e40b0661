#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/cuda/cuda.h"
#include "memory/region.h"
#include "store/mirror/cuda/device_index.h"
#include "store/mirror/taken_arrays.h"

using namespace gear;
using namespace gear::store;

namespace {

constexpr uint64_t kPages = 64;
constexpr uint64_t kPageSteps = 8;
constexpr uint64_t kPageBytes = 2048;

struct Field {
  uint64_t offset;
  uint64_t step_bytes;
};
// Every width that rows are moved by, and rows that vectors do not fit.
const std::vector<Field> kFields{{0, 1},   {16, 2},   {32, 3},   {64, 4},
                                 {96, 20}, {256, 24}, {512, 64}, {1024, 100}};

}  // namespace

TEST_CASE("rows on the GPU go where they belong, in order with rows of the host") {
  constexpr uint64_t kRows = 50;
  const auto region = memory::make_region(memory::Tier::kDevice, kPages * kPageBytes, {"", "", 0});
  const auto sink = make_row_sink(*region, kPageBytes);
  const auto taken = make_taken_arrays(*sink);
  std::vector<std::byte> wanted(region->bytes());
  region->write(0, wanted);
  std::mt19937_64 random(3);
  const base::Stream beside(0);
  std::vector<base::DeviceArray<std::byte>> sources;
  for (const Field& field : kFields) {
    sources.emplace_back(kRows * field.step_bytes, 0);
  }
  for (int call = 0; call < 200; ++call) {
    // What the caller's stream makes, and overwrites at once.
    std::vector<std::vector<std::byte>> values;
    std::vector<TakenArrays::Array> arrays;
    for (size_t c = 0; c < kFields.size(); ++c) {
      std::vector<std::byte>& column = values.emplace_back(sources[c].bytes());
      std::ranges::generate(column, [&] { return static_cast<std::byte>(random()); });
      GEAR_CUDA_TRY(cudaMemcpyAsync(sources[c].get(), column.data(), column.size(),
                                    cudaMemcpyHostToDevice, beside));
      arrays.push_back({sources[c].get(), column.size(), false});
    }
    arrays.push_back({sources[0].get(), kRows, true});
    std::vector<const std::byte*> copies(arrays.size());
    const auto end = taken->take(
        arrays, reinterpret_cast<uintptr_t>(static_cast<cudaStream_t>(beside)), {}, copies);
    for (const base::DeviceArray<std::byte>& source : sources) {
      GEAR_CUDA_TRY(cudaMemsetAsync(source.get(), 0xff, source.bytes(), beside));
    }
    taken->wait();
    CHECK(end->done());
    CHECK(std::equal(values[0].begin(), values[0].end(), copies.back()));
    const uint64_t page = random() % kPages;
    sink->reused(page);
    std::vector<std::byte> zeros(kFields[7].step_bytes);
    sink->write(page * kPageBytes + kFields[7].offset, nullptr, kFields[7].step_bytes);
    std::ranges::copy(
        zeros, wanted.begin() + static_cast<ptrdiff_t>(page * kPageBytes + kFields[7].offset));
    std::vector<RowSink::RowMove> moves;
    std::vector<uint32_t> slots(kPages * kPageSteps);
    for (uint32_t i = 0; i < slots.size(); ++i) {
      slots[i] = i;
    }
    std::ranges::shuffle(slots, random);
    const uint64_t count = 1 + random() % kRows;
    for (uint64_t i = 0; i < count; ++i) {
      moves.push_back({slots[i] / static_cast<uint32_t>(kPageSteps),
                       slots[i] % static_cast<uint32_t>(kPageSteps),
                       static_cast<uint32_t>(random() % kRows)});
    }
    std::vector<RowSink::DeviceColumn> columns;
    for (size_t c = 0; c < kFields.size(); ++c) {
      if (random() % 4 != 0) {
        columns.push_back({copies[c], kFields[c].offset, kFields[c].step_bytes});
        for (const RowSink::RowMove& move : moves) {
          std::copy_n(
              values[c].begin() + static_cast<ptrdiff_t>(move.source * kFields[c].step_bytes),
              kFields[c].step_bytes,
              wanted.begin() + static_cast<ptrdiff_t>(move.page * kPageBytes + kFields[c].offset +
                                                      move.row * kFields[c].step_bytes));
        }
      }
    }
    if (!columns.empty()) {
      taken->write_rows(columns, moves);
    }
    if (random() % 3 == 0) {
      sink->flush();
    }
  }
  sink->flush();
  sink->wait();
  std::vector<std::byte> got(region->bytes());
  region->read(0, got);
  CHECK(got == wanted);
  std::vector<std::byte> fetched(100);
  taken->fetch(fetched, region->device_data() + 700);
  CHECK(std::equal(fetched.begin(), fetched.end(), wanted.begin() + 700));
}

TEST_CASE("more rows on the GPU than a part of the ring holds the places of") {
  constexpr uint64_t kMany = 500'000;
  const auto region = memory::make_region(memory::Tier::kDevice, kMany * 2, {"", "", 0});
  const auto sink = make_row_sink(*region, kMany * 2);
  std::vector<std::byte> values(kMany * 2);
  for (uint64_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  const base::DeviceArray<std::byte> source(values.size(), 0);
  GEAR_CUDA_TRY(cudaMemcpy(source.get(), values.data(), values.size(), cudaMemcpyHostToDevice));
  std::vector<RowSink::RowMove> moves(kMany);
  std::vector<std::byte> wanted(values.size());
  for (uint32_t i = 0; i < kMany; ++i) {
    moves[i] = {0, i, static_cast<uint32_t>(kMany - 1 - i)};
    std::copy_n(values.begin() + moves[i].source * 2, 2, wanted.begin() + i * 2);
  }
  const RowSink::DeviceColumn column{source.get(), 0, 2};
  sink->write_rows({&column, 1}, moves);
  sink->wait();
  std::vector<std::byte> got(wanted.size());
  region->read(0, got);
  CHECK(got == wanted);
}
