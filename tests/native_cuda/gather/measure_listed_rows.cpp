// The gather of listed rows by itself, out of another GPU's memory, to hold against limits_peer.cu:
// gear_cuda_tests --no-skip=true --test-case='measure*'
#include <algorithm>
#include <cstdio>

#include "base/gpu/devices.h"
#include "gather/cuda/address_order.h"
#include "gather/cuda/row_gather.h"
#include "gather/cuda/row_upload.h"
#include "memory/peer_device_region.h"
#include "memory/region.h"
#include "planned_content.h"

using namespace gear::plan;
using namespace gear::gather;
using namespace gear::store;
using namespace gear::testing;

namespace {

constexpr uint64_t kPoolBytes = uint64_t{2} << 30;
constexpr uint64_t kBatchBytes = uint64_t{256} << 20;

// Median microseconds of `work`.
template <class Work>
double median_us(const gear::base::Stream& stream, const Work& work) {
  std::vector<float> times;
  gear::base::Event begin(true);
  gear::base::Event end(true);
  for (int turn = 0; turn < 8; ++turn) {
    begin.record(stream);
    work();
    end.record(stream);
    end.synchronize();
    if (turn > 0) {
      times.push_back(end.ms_since(begin) * 1e3F);
    }
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void measure(uint64_t row_bytes, uint64_t page_bytes) {
  const int owner = gear::base::device_count() - 1;
  const Schema schema({{"x", {static_cast<int64_t>(row_bytes)}, gear::base::DType::kU8}});
  const PageLayout pages(schema, page_bytes / row_bytes);
  const uint64_t items = kBatchBytes / row_bytes;
  const auto layout =
      std::make_shared<BatchLayout>(schema, std::vector<Output>{{"x", 0, 0, 1}}, items, false);
  const auto region =
      gear::memory::make_region(gear::memory::Tier::kDevice, kPoolBytes, {"", "", owner});
  gear::memory::open_peer_access(kDevice, owner);
  Plan plan;
  plan.begin_window(items);
  const uint64_t num_pages = kPoolBytes / pages.page_bytes;
  for (uint32_t i = 0; i < items; ++i) {
    const uint64_t slot = random_below(num_pages * pages.page_steps, row_bytes, i);
    plan.add({static_cast<uint32_t>(slot / pages.page_steps),
              static_cast<uint32_t>(slot % pages.page_steps), 1, i});
  }
  const gear::base::Stream stream(kDevice);
  RowUpload upload(static_cast<uint32_t>(pages.page_steps), 1, kDevice);
  upload.add(plan, gear::base::ThreadPool::shared());
  upload.upload(stream);
  AddressOrder order(pages, num_pages * pages.page_steps, kDevice);
  const gear::base::DeviceArray<std::byte> block(layout->bytes, kDevice);
  std::byte* const target = block.get();
  const auto say = [&](const char* what, uint32_t blocks, double us) {
    std::printf(
        "{\"what\": \"listed_rows\", \"form\": \"%s\", \"row_bytes\": %llu, \"page_bytes\": "
        "%llu, \"blocks\": %u, \"us\": %.1f, \"gb_per_s\": %.1f}\n",
        what, static_cast<unsigned long long>(row_bytes),
        static_cast<unsigned long long>(page_bytes), blocks, us,
        static_cast<double>(kBatchBytes) / us * 1e-3);
  };
  for (const RowForm form : {RowForm::kListed, RowForm::kAddressed}) {
    const RowGather gather(layout, pages, form);
    for (const uint32_t blocks : {264U, 528U, 1056U, UINT32_MAX}) {
      const RowGather::Part part{region->device_data(), upload.lists(0)};
      const double us =
          median_us(stream, [&] { gather.gather({&part, 1}, {&target, 1}, blocks, stream); });
      say(form == RowForm::kListed ? "listed" : "addressed, in any order", blocks, us);
    }
  }
  const RowGather gather(layout, pages, RowForm::kAddressed);
  const double us = median_us(stream, [&] {
    const RowGather::Part part{region->device_data(), order.launch(upload.lists(0), stream)};
    gather.gather({&part, 1}, {&target, 1}, UINT32_MAX, stream);
  });
  say("addressed, sorted", UINT32_MAX, us);
}

}  // namespace

TEST_CASE("measure: listed rows of another GPU" * doctest::skip()) {
  for (const uint64_t page_bytes : {uint64_t{4} << 10, uint64_t{256} << 10}) {
    for (const uint64_t row_bytes : {256, 1024}) {
      measure(row_bytes, page_bytes);
    }
  }
}
