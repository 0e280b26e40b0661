#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/numbers/philox.h"
#include "deliver/block_pool.h"
#include "gather/gather_cpu.h"

using namespace gear::deliver;
using namespace gear::plan;
using namespace gear::gather;
using gear::base::DType;
using gear::base::ThreadPool;
using gear::store::kNone;
using gear::store::PageLayout;
using gear::store::Schema;

namespace {

constexpr std::byte kGuard{0xa5};

std::vector<std::byte> random_bytes(uint64_t count) {
  std::vector<std::byte> bytes(count);
  for (uint64_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(gear::base::philox(5, 0, i).lo);
  }
  return bytes;
}

// A batch of one item of `rows` rows a column; all columns share the window.
Batch make_batch(const Schema& schema, int64_t rows) {
  std::vector<Output> outputs;
  for (size_t c = 0; c < schema.size(); ++c) {
    outputs.push_back({schema[c].name, c, 1 - rows, 1});
  }
  Batch batch;
  batch.layout = std::make_shared<BatchLayout>(schema, outputs, 1, false);
  REQUIRE(batch.layout->windows.size() == 1);
  batch.block = host_block(batch.layout->bytes);
  std::memset(batch.block.get(), static_cast<int>(kGuard), batch.layout->bytes);
  return batch;
}

std::vector<std::byte> bytes_of(const Batch& batch) {
  return {batch.block.get(), batch.block.get() + batch.layout->bytes};
}

// What a batch of guard bytes must hold after the run: byte by byte.
void model(const std::vector<std::byte>& source, const PageLayout& pages, const Batch& batch,
           const Run& run, std::vector<std::byte>& wanted) {
  for (size_t o = 0; o < batch.layout->outputs.size(); ++o) {
    const size_t column = batch.layout->outputs[o].column;
    const uint64_t step_bytes = pages.step_bytes[column];
    for (uint64_t i = 0; i < run.count * step_bytes; ++i) {
      wanted[batch.layout->data[o] + run.target * step_bytes + i] =
          run.page == kNone ? std::byte{0} : source[pages.offset(run.page, column, run.row) + i];
    }
  }
}

}  // namespace

TEST_CASE("gather: every length at every alignment moves its bytes and no other") {
  ThreadPool pool(1);
  const Schema schema({{"x", {}, DType::kU8}});
  const PageLayout pages(schema, 400);
  const std::vector<std::byte> source = random_bytes(2 * pages.page_bytes);
  const Batch batch = make_batch(schema, 500);
  for (uint32_t count = 1; count <= 300; ++count) {
    for (uint32_t align = 0; align < 64; ++align) {
      // Source and target take every alignment, not always the same; every 16th run is zeros.
      const uint32_t page = align % 16 == 0 ? kNone : count % 2;
      const Run run{page, align, count, 64 + (align * 7 + count) % 64};
      std::memset(batch.block.get(), static_cast<int>(kGuard), batch.layout->bytes);
      std::vector<std::byte> wanted = bytes_of(batch);
      model(source, pages, batch, run, wanted);
      Plan plan;
      plan.reset();
      plan.begin_window(1);
      plan.add(run);
      gather_cpu(source.data(), pages, plan, batch, pool);
      CAPTURE(count);
      CAPTURE(align);
      REQUIRE(std::memcmp(batch.block.get(), wanted.data(), wanted.size()) == 0);
    }
  }
}

TEST_CASE("gather: steps of every width, drawn one by one, move their bytes and no other") {
  ThreadPool pool(1);
  constexpr uint32_t kRows = 150;  // some groups, and a part of one
  for (int64_t width = 1; width <= 5000; width += width < 140 ? 1 : 443) {
    const Schema schema({{"x", {width}, DType::kU8}, {"y", {}, DType::kF64}});
    const PageLayout pages(schema, 7);
    const std::vector<std::byte> source = random_bytes(9 * pages.page_bytes);
    Batch batch = make_batch(schema, 2 * kRows);
    std::vector<std::byte> wanted = bytes_of(batch);
    Plan plan;
    plan.reset();
    plan.begin_window(kRows);
    for (uint32_t i = 0; i < kRows; ++i) {
      const gear::base::Draw128 draw = gear::base::philox(8, static_cast<uint64_t>(width), i);
      // Rows of zeros and longer runs stand between them.
      const uint32_t page = draw.hi % 16 == 0 ? kNone : static_cast<uint32_t>(draw.hi % 9);
      const uint32_t count = draw.lo % 64 == 0 ? 2 : 1;
      const Run run{page, static_cast<uint32_t>(draw.lo % 6), count, 2 * i};
      plan.add(run);
      model(source, pages, batch, run, wanted);
    }
    CAPTURE(width);
    for (const uint64_t said : {uint64_t{0}, uint64_t{8} << 20}) {  // past the caches, too
      batch.bytes = said;
      std::memset(batch.block.get(), static_cast<int>(kGuard), batch.layout->bytes);
      gather_cpu(source.data(), pages, plan, batch, pool);
      REQUIRE(std::memcmp(batch.block.get(), wanted.data(), wanted.size()) == 0);
    }
  }
}

TEST_CASE("gather: steps that are converted, drawn one by one, beside others") {
  ThreadPool pool(1);
  constexpr uint32_t kRows = 70;
  const Schema schema({{"x", {3}, DType::kU8}, {"y", {5}, DType::kU8}});
  const PageLayout pages(schema, 7);
  const std::vector<std::byte> source = random_bytes(9 * pages.page_bytes);
  const StepColumn converted{0, {1 - int64_t{kRows}, 1}, true, DType::kF32, 0.5F};
  Batch batch;
  batch.layout = std::make_shared<BatchLayout>(
      schema, std::vector<Output>{{"x", converted}, {"y", 1, 1 - int64_t{kRows}, 1}}, 1, false);
  batch.block = host_block(batch.layout->bytes);
  std::memset(batch.block.get(), static_cast<int>(kGuard), batch.layout->bytes);
  std::vector<std::byte> wanted = bytes_of(batch);
  Plan plan;
  plan.reset();
  plan.begin_window(kRows);
  for (uint32_t i = 0; i < kRows; i += 2) {  // every second row stays as it was
    const gear::base::Draw128 draw = gear::base::philox(9, 0, i);
    const Run run{i % 9 == 4 ? kNone : static_cast<uint32_t>(draw.hi % 9),
                  static_cast<uint32_t>(draw.lo % 7), 1, i};
    plan.add(run);
    const auto value = [&](size_t column, uint64_t k) {
      return run.page == kNone ? std::byte{0} : source[pages.offset(run.page, column, run.row) + k];
    };
    for (uint64_t k = 0; k < 5; ++k) {
      wanted[batch.layout->data[1] + i * 5 + k] = value(1, k);
    }
    for (uint64_t k = 0; k < 3; ++k) {
      const float half = 0.5F * static_cast<float>(value(0, k));
      std::memcpy(wanted.data() + batch.layout->data[0] + (i * 3 + k) * sizeof half, &half,
                  sizeof half);
    }
  }
  gather_cpu(source.data(), pages, plan, batch, pool);
  CHECK(bytes_of(batch) == wanted);
}

TEST_CASE("gather: long runs of a batch larger than the caches move their bytes and no other") {
  ThreadPool pool(1);
  const Schema schema({{"x", {}, DType::kU8}});
  const PageLayout pages(schema, 1700);
  const std::vector<std::byte> source = random_bytes(2 * pages.page_bytes);
  Batch batch = make_batch(schema, 1700);
  batch.bytes = uint64_t{1} << 30;  // what it says that it moves, all in all
  for (const uint32_t count : {1000, 1023, 1024, 1025, 1087, 1088, 1500}) {
    for (uint32_t align = 0; align < 64; ++align) {
      const Run run{count % 2, align, count, 64 + (align * 7 + count) % 64};
      std::memset(batch.block.get(), static_cast<int>(kGuard), batch.layout->bytes);
      std::vector<std::byte> wanted = bytes_of(batch);
      model(source, pages, batch, run, wanted);
      Plan plan;
      plan.reset();
      plan.begin_window(1);
      plan.add(run);
      gather_cpu(source.data(), pages, plan, batch, pool);
      CAPTURE(count);
      CAPTURE(align);
      REQUIRE(std::memcmp(batch.block.get(), wanted.data(), wanted.size()) == 0);
    }
  }
}

TEST_CASE("gather: plans for the thread pool move what plans for one thread do") {
  const Schema schema({{"x", {}, DType::kU8}, {"y", {3}, DType::kF32}, {"z", {17}, DType::kU8}});
  const PageLayout pages(schema, 300);
  const std::vector<std::byte> source = random_bytes(5 * pages.page_bytes);
  constexpr uint32_t kRows = 100000;
  Batch batch = make_batch(schema, kRows);
  std::vector<std::byte> wanted = bytes_of(batch);
  Plan plan;
  plan.reset();
  plan.begin_window(kRows);
  uint32_t target = 1;  // a row of guard between the runs
  for (uint64_t i = 0; target + 301 < kRows; ++i) {
    const gear::base::Draw128 draw = gear::base::philox(6, 0, i);
    const auto count = static_cast<uint32_t>(1 + draw.lo % (i % 3 == 0 ? 300 : 20));
    const auto row = static_cast<uint32_t>((draw.hi >> 8) % (301 - count));
    const Run run{draw.hi % 10 == 0 ? kNone : static_cast<uint32_t>(draw.hi % 5), row, count,
                  target};
    plan.add(run);
    model(source, pages, batch, run, wanted);
    batch.bytes += count * schema.step_bytes();
    target += count + 1;
  }
  REQUIRE(batch.bytes > 2 << 20);
  for (const size_t threads : {1, 4}) {
    ThreadPool pool(threads);
    std::memset(batch.block.get(), static_cast<int>(kGuard), batch.layout->bytes);
    gather_cpu(source.data(), pages, plan, batch, pool);
    CHECK(bytes_of(batch) == wanted);
  }
}

TEST_CASE("gather: a plan without a run, and one of several windows") {
  const Schema schema({{"x", {}, DType::kU8}});
  const PageLayout pages(schema, 100);
  const std::vector<std::byte> source = random_bytes(pages.page_bytes);
  ThreadPool pool(2);
  Plan plan;
  const Batch none = make_batch(schema, 10);
  const std::vector<std::byte> untouched = bytes_of(none);
  plan.reset();
  plan.begin_window(0);
  gather_cpu(source.data(), pages, plan, none, pool);
  CHECK(bytes_of(none) == untouched);

  Batch batch;
  batch.layout = std::make_shared<BatchLayout>(
      schema, std::vector<Output>{{"a", 0, 0, 3}, {"b", 0, 0, 3}, {"c", 0, 1, 4}}, 1, false);
  REQUIRE(batch.layout->window_of == std::vector<size_t>{0, 0, 1});
  batch.block = host_block(batch.layout->bytes);
  plan.reset();
  for (uint32_t window = 0; window < 2; ++window) {
    plan.begin_window(1);
    plan.add({0, window, 3, 0});
  }
  CHECK(plan.num_runs() == 2);
  CHECK(plan.runs(1)[0].row == 1);
  gather_cpu(source.data(), pages, plan, batch, pool);
  for (size_t o = 0; o < 3; ++o) {
    const size_t row = batch.layout->window_of[o];
    CHECK(std::memcmp(batch.at<std::byte>(batch.layout->data[o]), source.data() + row, 3) == 0);
  }
}
