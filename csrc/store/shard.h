#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "memory/region.h"
#include "store/index.h"
#include "store/page_layout.h"
#include "store/rate_limiter.h"
#include "store/schema.h"

namespace gear::store {

struct ShardOptions {
  uint64_t capacity = 0;  // steps, rounded up to whole pages
  uint64_t page_steps = PageLayout::kDefaultPageSteps;
  memory::Tier tier = memory::Tier::kHost;
  int device = -1;   // of tier kDevice: which GPU; -1: the current one
  std::string name;  // of a shared or pinned region
  Evict evict = Evict::kFifo;
  uint32_t max_times_sampled = 0;
  uint32_t owner = 0;
  RateLimiter rate_limiter;
};

// One rank's part of the buffer: the pages in a region, the index over them, and the lock.
//
// Readers and pages: a batch is planned under the lock and copied without it. Between the two it
// holds a *read ticket*; a page evicted meanwhile is reused only after every ticket issued before
// the eviction is given back, so a copy never races a writer.
class Shard {
 public:
  // Throws InvalidArgument for a capacity below one page, OutOfMemory when the tier has no room.
  Shard(Schema schema, const ShardOptions& options);

  // As above, taking over a saved index; the pages' bytes are the caller's to fill.
  Shard(Schema schema, const ShardOptions& options, IndexState state);

  const Schema& schema() const { return *schema_; }
  // For who outlives the shard: batches.
  std::shared_ptr<const Schema> shared_schema() const { return schema_; }
  const PageLayout& layout() const { return layout_; }
  const ShardOptions& options() const { return options_; }
  memory::Region& region() { return *region_; }
  std::byte* data() { return region_->data(); }

  // The lock is for index() and rate_limiter(); hold it for microseconds.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  Index& index() { return index_; }
  RateLimiter& rate_limiter() { return rate_limiter_; }

  // Bytes held: region, index and trees.
  uint64_t bytes();

  // ---- under the lock ----
  uint64_t begin_read();
  // Appends a page to `episode`, evicting if need be, and returns it. Gives the lock up while
  // readers of the page finish.
  uint32_t attach_page(std::unique_lock<std::mutex>& lock, uint32_t episode);
  // Waits until the rate limiter lets `steps` in and counts them as inserted; false when timeout_s
  // (none: for ever) passed first.
  bool reserve_insert(std::unique_lock<std::mutex>& lock, uint64_t steps,
                      std::optional<double> timeout_s);
  // Waits until `count` samples are allowed and something may be drawn. The caller counts what it
  // draws (rate_limiter().sampled) before it gives up the lock.
  bool wait_sample(std::unique_lock<std::mutex>& lock, uint64_t count, Unit unit,
                   std::optional<double> timeout_s);
  // Wakes who waits in reserve_insert or wait_sample, after the counts or the index changed.
  void notify_progress() { progress_.notify_all(); }

  // ---- without the lock ----
  void end_read(uint64_t ticket);

 private:
  template <class Allowed>
  bool wait(std::unique_lock<std::mutex>& lock, std::optional<double> timeout_s, Allowed allowed);

  std::shared_ptr<const Schema> schema_;
  ShardOptions options_;
  PageLayout layout_;
  std::unique_ptr<memory::Region> region_;
  Index index_;
  std::mutex mutex_;
  std::condition_variable progress_;
  RateLimiter rate_limiter_;
  // Apart from the lock, so that a gather that ends need not wait for a selection: taken inside it.
  std::mutex reading_mutex_;
  std::condition_variable reads_done_;
  std::vector<uint64_t> reading_;  // tickets not given back, ascending
};

}  // namespace gear::store
