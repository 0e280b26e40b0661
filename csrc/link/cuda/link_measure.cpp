#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "base/numbers/philox.h"
#include "base/threads/spin.h"
#include "base/threads/thread_pool.h"
#include "gather/cuda/row_gather.h"
#include "gather/gather_cpu.h"
#include "link/link_measure.h"
#include "memory/limits.h"
#include "memory/tiers.h"
#include "plan/plan.h"

namespace gear::link {
namespace {

constexpr uint64_t kSmallRowBytes = 64;    // of which the places bind
constexpr uint64_t kLargeRowBytes = 4096;  // of which the bytes bind
constexpr uint64_t kBatchBytes = uint64_t{64} << 20;
constexpr size_t kRepeats = 3;  // of which the median counts; one more before them does not
constexpr uint64_t kPoolBytes = uint64_t{4} << 30;
constexpr uint64_t kLeastPoolBytes = uint64_t{512} << 20;

// Page-locked memory to gather from: so much that its addresses are not all translated at once.
std::unique_ptr<memory::Region> make_pool(int device) {
  uint64_t bytes = kPoolBytes;
  while (bytes > kLeastPoolBytes && bytes > memory::host_memory().available / 4) {
    bytes /= 2;
  }
  for (;; bytes /= 2) {
    try {
      std::unique_ptr<memory::Region> pool = memory::make_region(memory::Tier::kHost, bytes);
      // Touched by all threads: page-locking would have one provide the memory.
      base::ThreadPool& threads = base::ThreadPool::shared();
      constexpr uint64_t kPart = uint64_t{16} << 20;
      threads.parallel_for(bytes / kPart, [&](size_t i) {
        std::memset(pool->data() + i * kPart, static_cast<int>(i), kPart);
      });
      return memory::pin_region(std::move(pool), device);
    } catch (const base::OutOfMemory&) {
      if (bytes <= kLeastPoolBytes) {
        throw;
      }
    }
  }
}

using Clock = std::chrono::steady_clock;

// Of one measurement and its repeats; the first does not count.
using Seconds = std::array<double, kRepeats + 1>;

double median(Seconds seconds) {
  std::sort(seconds.begin() + 1, seconds.end());
  return seconds[1 + kRepeats / 2];
}

// Gathers of random rows of one size, in the order drawn, a batch at a time.
class LinkTrial {
 public:
  LinkTrial(const memory::Region& pool, uint64_t row_bytes, int device)
      : pool_(pool),
        schema_({{"x", {static_cast<int64_t>(row_bytes)}, base::DType::kU8}}),
        pages_(schema_, store::PageLayout::kDefaultPageSteps),
        num_pages_(pool.bytes() / pages_.page_bytes),
        items_(kBatchBytes / row_bytes),
        layout_(std::make_shared<plan::BatchLayout>(
            schema_, std::vector<plan::Output>{{"x", 0, 0, 1}}, items_, false)),
        stream_(device),
        gather_(layout_, pages_, gather::RowForm::kDelivered),
        block_(layout_->bytes, device),
        slots_(items_ * (kRepeats + 1), device) {
    host_slots_.resize(slots_.size());
    for (size_t i = 0; i < host_slots_.size(); ++i) {
      const uint64_t slots = num_pages_ * pages_.page_steps;
      host_slots_[i] = static_cast<uint32_t>(base::scale_to(base::philox(row_bytes, 0, i), slots));
    }
    GEAR_CUDA_TRY(cudaMemcpyAsync(slots_.get(), host_slots_.data(), slots_.bytes(),
                                  cudaMemcpyHostToDevice, stream_));
    stream_.synchronize();
  }

  double by_pointer_s() const {
    Seconds seconds{};
    for (size_t repeat = 0; repeat <= kRepeats; ++repeat) {
      base::Event begin(true);
      base::Event end(true);
      const plan::RowList rows{slots_.get() + repeat * items_, nullptr,
                               static_cast<uint32_t>(items_)};
      std::byte* const block = block_.get();
      begin.record(stream_);
      const gather::RowGather::Part part{pool_.device_data(), {&rows, 1}};
      gather_.gather({&part, 1}, {&block, 1}, gather::kBlocksFromHost, stream_);
      end.record(stream_);
      end.synchronize();
      seconds[repeat] = end.ms_since(begin) / 1e3;
    }
    return median(seconds);
  }

  // Batches one behind the other, as a loader has them: a copy runs under the next gather.
  double staged_s() const {
    std::array<base::PinnedArray<std::byte>, 2> stages;
    std::array<base::Event, 2> copied;
    for (base::PinnedArray<std::byte>& stage : stages) {
      stage = base::PinnedArray<std::byte>(layout_->bytes, stream_.device());
    }
    Seconds seconds{};
    for (size_t repeat = 0; repeat <= kRepeats; ++repeat) {
      const plan::Plan plan = make_plan_of(repeat);
      const Clock::time_point start = Clock::now();
      std::byte* const stage = stages[repeat % stages.size()].get();
      base::Event& free = copied[repeat % stages.size()];
      free.synchronize();
      gather_on_host(plan, stage);
      GEAR_CUDA_TRY(
          cudaMemcpyAsync(block_.get(), stage, layout_->bytes, cudaMemcpyHostToDevice, stream_));
      free.record(stream_);
      if (repeat == kRepeats) {
        free.synchronize();
      }
      seconds[repeat] = base::seconds_since(start);
    }
    return median(seconds);
  }

 private:
  plan::Plan make_plan_of(size_t repeat) const {
    plan::Plan plan;
    plan.begin_window(items_);
    for (uint64_t i = 0; i < items_; ++i) {
      const uint32_t slot = host_slots_[repeat * items_ + i];
      const auto page_steps = static_cast<uint32_t>(pages_.page_steps);
      plan.add({slot / page_steps, slot % page_steps, 1, static_cast<uint32_t>(i)});
    }
    return plan;
  }

  void gather_on_host(const plan::Plan& plan, std::byte* stage) const {
    plan::Batch batch;
    batch.block = std::shared_ptr<std::byte>(stage, [](std::byte*) {});
    batch.layout = layout_;
    batch.items = items_;
    batch.bytes = items_ * pages_.step_bytes[0];
    gather::gather_cpu(pool_.data(), pages_, plan, batch, base::ThreadPool::shared());
  }

  const memory::Region& pool_;
  store::Schema schema_;
  store::PageLayout pages_;
  uint64_t num_pages_;
  uint64_t items_;
  std::shared_ptr<const plan::BatchLayout> layout_;
  base::Stream stream_;
  gather::RowGather gather_;
  base::DeviceArray<std::byte> block_;
  base::DeviceArray<uint32_t> slots_;
  std::vector<uint32_t> host_slots_;
};

}  // namespace

LinkModel measure_link(int device) {
  const base::OnDevice current(device);
  const std::unique_ptr<memory::Region> pool = make_pool(device);
  const LinkTrial small(*pool, kSmallRowBytes, device);
  const LinkTrial large(*pool, kLargeRowBytes, device);
  constexpr auto kBatch = static_cast<double>(kBatchBytes);
  const double places = LinkModel::untranslated(kBatch / kSmallRowBytes, pool->bytes());
  return {kBatch / large.by_pointer_s(), places / small.by_pointer_s(), kBatch / large.staged_s()};
}

}  // namespace gear::link
