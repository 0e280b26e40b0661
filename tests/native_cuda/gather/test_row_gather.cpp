// The device's gather against the CPU's, for rows of every alignment, sources and conversions.
#include "planned_content.h"

using namespace gear::plan;
using namespace gear::gather;
using namespace gear::store;
using namespace gear::testing;
using gear::base::DType;

namespace {

// Every vector width, narrow and wide rows, and rows that end a few vectors into a tile.
std::vector<Column> widths() {
  std::vector<Column> columns;
  for (const int64_t bytes : {1,  2,   3,   4,    6,    8,    12,   16,   17,   24,    44,   48,
                              68, 100, 256, 1023, 1024, 1025, 2050, 4097, 7056, 16400, 49152}) {
    columns.push_back({"c" + std::to_string(bytes), {bytes}, DType::kU8});
  }
  return columns;
}

std::vector<Output> all_columns(const Schema& schema, int64_t start, int64_t stop) {
  std::vector<Output> outputs;
  for (size_t c = 0; c < schema.size(); ++c) {
    outputs.push_back({schema[c].name, c, start, stop});
  }
  return outputs;
}

}  // namespace

TEST_CASE("rows of every width arrive whole") {
  const auto shard = make_content(widths(), 5, 60);
  const UploadedShard uploaded(*shard);
  uint64_t round = 0;
  for (const bool packed : {false, true}) {
    for (const bool ordered : {false, true}) {
      const std::vector<Output> windows = all_columns(shard->schema(), -2, 2);
      expect_same_batch(*shard, uploaded, {windows, 33, 32, packed, ordered}, ++round);
      const std::vector<Output> steps = all_columns(shard->schema(), 0, 1);
      expect_same_batch(*shard, uploaded, {steps, 67, 67, packed, ordered}, ++round);
    }
  }
}

TEST_CASE("rows come from mapped host memory too") {
  const auto shard = make_content(widths(), 5, 60);
  const UploadedShard uploaded(*shard);
  for (const bool ordered : {false, true}) {
    const std::vector<Output> outputs = all_columns(shard->schema(), -1, 2);
    expect_same_batch(*shard, uploaded, {outputs, 150, 149, false, ordered, true}, 7);
    expect_same_batch(*shard, uploaded, {outputs, 150, 149, true, ordered, true}, 8);
    // Short runs only: another shape of kernel.
    std::vector<Output> narrow(outputs.begin(), outputs.begin() + 16);
    expect_same_batch(*shard, uploaded, {narrow, 1500, 1499, false, ordered, true}, 9);
    expect_same_batch(*shard, uploaded, {narrow, 1500, 1499, true, ordered, true}, 10);
  }
}

TEST_CASE("batches planned one by one are gathered together") {
  const auto shard = make_content(widths(), 5, 60);
  const UploadedShard uploaded(*shard);
  const std::vector<Anchor> anchors = stored_steps(shard->index());
  constexpr uint64_t kBatch = 33;
  for (const bool packed : {false, true}) {
    CAPTURE(packed);
    const auto layout = std::make_shared<BatchLayout>(
        shard->schema(), all_columns(shard->schema(), -2, 2), kBatch, packed);
    DevicePlan plan(layout, shard->layout(), shard->index().num_slots(), kDevice, 3);
    AddressOrder order(shard->layout(), shard->index().num_slots(), kDevice);
    order.reserve(3 * kBatch * 4, 3 * kBatch * 4);
    const RowGather gather(layout, shard->layout(), RowForm::kAddressed);
    const gear::base::Stream stream(kDevice);
    // Full batches but for the last of each group.
    for (const std::vector<uint64_t>& group :
         {std::vector<uint64_t>{33, 33, 33}, {33, 7}, {33}, {1}}) {
      std::vector<Batch> expected;
      std::vector<std::unique_ptr<GuardedBlock>> blocks;
      std::vector<std::byte*> targets;
      uint64_t first = 0;
      for (const uint64_t items : group) {
        gear::select::Selection selection;
        std::vector<uint32_t> slots;
        for (uint64_t i = 0; i < items; ++i) {
          const Anchor anchor = anchors[random_below(anchors.size(), 50 + group.size(), first + i)];
          selection.add(anchor, 1.0F);
          slots.push_back(static_cast<uint32_t>(shard->index().slot(anchor)));
        }
        expected.push_back(batch_on_cpu(*shard, layout, selection));
        blocks.push_back(std::make_unique<GuardedBlock>(layout->bytes));
        targets.push_back(blocks.back()->get());
        const auto anchors_there = upload(slots);
        GEAR_CUDA_TRY(cudaMemcpyAsync(plan.slots(), anchors_there.get(), anchors_there.bytes(),
                                      cudaMemcpyDeviceToDevice, stream));
        plan.launch(uploaded.view, Unit::kStep, items, targets.back(), nullptr, stream, first);
        stream.synchronize();
        first += items;
      }
      const RowGather::Part part{uploaded.bytes(), order.launch(plan.rows(), stream)};
      gather.gather({&part, 1}, targets, UINT32_MAX, stream);
      stream.synchronize();
      for (size_t i = 0; i < group.size(); ++i) {
        expect_same_block(expected[i], blocks[i]->read());
      }
    }
  }
}

TEST_CASE("conversions are those of the CPU, to the bit") {
  std::vector<Column> columns;
  for (const int64_t values : {1, 2, 3, 4, 8, 16, 40, 441, 1100, 7056, 9000}) {
    columns.push_back({"u" + std::to_string(values), {values}, DType::kU8});
    columns.push_back({"f" + std::to_string(values), {values}, DType::kF32});
  }
  const auto shard = make_content(columns, 3, 60);
  const UploadedShard uploaded(*shard);
  uint64_t round = 0;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    for (const float scale : {1.0F, 1.0F / 255.0F, -2.5e-3F}) {
      std::vector<Output> outputs = all_columns(shard->schema(), -1, 2);
      for (Output& output : outputs) {
        auto& of = std::get<StepColumn>(output.source);
        if (shard->schema()[of.column].dtype == dtype) {
          continue;
        }
        of.dtype = dtype;
        of.scale = scale;
      }
      expect_same_batch(*shard, uploaded, {outputs, 20, 20, ++round % 2 == 0}, round);
    }
  }
}

TEST_CASE("pages beyond 4 GiB, into blocks beyond 4 GiB") {
  constexpr uint64_t kRowBytes = 7056;
  constexpr uint64_t kRows = 640000;  // 4.5 GB
  const Schema schema({{"frame", {static_cast<int64_t>(kRowBytes)}, DType::kU8}});
  const PageLayout pages(schema, 16);
  const uint64_t num_pages = (uint64_t{5} << 30) / pages.page_bytes;
  const auto layout =
      std::make_shared<BatchLayout>(schema, std::vector<Output>{{"x", 0, 0, 1}}, kRows, false);
  size_t free = 0;
  size_t total = 0;
  GEAR_CUDA_TRY(cudaMemGetInfo(&free, &total));
  if (free < num_pages * pages.page_bytes + layout->bytes + (uint64_t{1} << 30)) {
    MESSAGE("skipped: ", free, " bytes are free");
    return;
  }
  const gear::base::DeviceArray<std::byte> source(num_pages * pages.page_bytes, kDevice);
  const gear::base::DeviceArray<std::byte> block(layout->bytes, kDevice);
  // Two rows with content, one at each end; the other rows of the batch are zeros.
  const auto last_slot = static_cast<uint32_t>(num_pages * pages.page_steps - 1);
  std::vector<std::byte> first(kRowBytes, std::byte{1});
  std::vector<std::byte> last(kRowBytes, std::byte{2});
  GEAR_CUDA_TRY(cudaMemcpy(source.get() + pages.offset(0, 0, 0), first.data(), kRowBytes,
                           cudaMemcpyHostToDevice));
  GEAR_CUDA_TRY(cudaMemcpy(source.get() + pages.offset(num_pages - 1, 0, pages.page_steps - 1),
                           last.data(), kRowBytes, cudaMemcpyHostToDevice));
  std::vector<uint32_t> slots(kRows, kNone);
  slots[0] = last_slot;
  slots[kRows - 2] = 0;
  slots[kRows - 1] = last_slot;
  const auto slots_there = upload(slots);
  const gear::base::Stream stream(kDevice);
  const RowGather gather(layout, pages, RowForm::kDelivered);
  std::byte* const target = block.get();
  const RowList rows{slots_there.get(), nullptr, static_cast<uint32_t>(kRows)};
  const RowGather::Part part{source.get(), {&rows, 1}};
  gather.gather({&part, 1}, {&target, 1}, UINT32_MAX, stream);
  stream.synchronize();
  const auto row = [&](uint64_t r) {
    return download(block.get() + layout->data[0] + r * kRowBytes, kRowBytes);
  };
  CHECK(row(0) == last);
  CHECK(row(1) == std::vector<std::byte>(kRowBytes));
  CHECK(row(kRows - 3) == std::vector<std::byte>(kRowBytes));
  CHECK(row(kRows - 2) == first);
  CHECK(row(kRows - 1) == last);
}
