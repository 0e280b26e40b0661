#include "store/shard.h"

#include <algorithm>
#include <chrono>

#include "base/errors.h"

namespace gear::store {
namespace {

uint64_t num_pages(const ShardOptions& options) {
  if (options.capacity < options.page_steps) {
    throw base::InvalidArgument(base::cat(
        "[store] capacity ", options.capacity, " is less than one page of ", options.page_steps,
        " steps: raise capacity to ", options.page_steps, " or more, or lower page_steps"));
  }
  return (options.capacity + options.page_steps - 1) / options.page_steps;
}

IndexOptions index_options(const ShardOptions& options) {
  return {num_pages(options), options.page_steps, options.owner, options.evict,
          options.max_times_sampled};
}

std::unique_ptr<memory::Region> make_region(const Schema& schema, const PageLayout& layout,
                                            const ShardOptions& options) {
  check_options(index_options(options));
  const uint64_t pages = num_pages(options);
  if (pages > (uint64_t{1} << 62) / layout.page_bytes) {
    throw base::OutOfMemory(base::cat("[store] capacity ", options.capacity, " of ",
                                      schema.step_bytes(), " bytes a step is beyond any memory"));
  }
  return memory::make_region(options.tier, pages * layout.page_bytes,
                             {options.name, schema.hash(), options.device});
}

}  // namespace

// The region comes before the index: a size that does not fit is refused before any work is done.
Shard::Shard(Schema schema, const ShardOptions& options)
    : schema_(std::make_shared<Schema>(std::move(schema))),
      options_(options),
      layout_(*schema_, options.page_steps),
      region_(make_region(*schema_, layout_, options)),
      index_(index_options(options)),
      rate_limiter_(options.rate_limiter) {}

Shard::Shard(Schema schema, const ShardOptions& options, IndexState state)
    : schema_(std::make_shared<Schema>(std::move(schema))),
      options_(options),
      layout_(*schema_, options.page_steps),
      region_(make_region(*schema_, layout_, options)),
      index_(index_options(options), std::move(state)),
      rate_limiter_(options.rate_limiter) {}

uint64_t Shard::bytes() {
  const auto held = lock();
  return region_->bytes() + index_.bytes();
}

uint64_t Shard::begin_read() {
  const uint64_t ticket = index_.clock() + 1;
  index_.set_clock(ticket);
  const std::lock_guard guard(reading_mutex_);
  reading_.push_back(ticket);
  return ticket;
}

void Shard::end_read(uint64_t ticket) {
  {
    const std::lock_guard guard(reading_mutex_);
    reading_.erase(std::find(reading_.begin(), reading_.end(), ticket));
  }
  reads_done_.notify_all();
}

uint32_t Shard::attach_page(std::unique_lock<std::mutex>& held, uint32_t episode) {
  for (;;) {
    // While this thread waits without the lock another writer may take the page, so that whichever
    // is next then is looked at anew.
    const uint64_t evicted_at = index_.evicted_at(index_.next_free_page(episode));
    const auto unread = [&] { return reading_.empty() || reading_.front() > evicted_at; };
    std::unique_lock reading(reading_mutex_);
    if (unread()) return index_.attach_page(episode);
    held.unlock();
    reads_done_.wait(reading, unread);
    reading.unlock();
    held.lock();
  }
}

template <class Allowed>
bool Shard::wait(std::unique_lock<std::mutex>& held, std::optional<double> timeout_s,
                 Allowed allowed) {
  constexpr double kForEver = 1e9;  // seconds; more would overflow the clock
  if (!timeout_s || *timeout_s > kForEver) {
    progress_.wait(held, allowed);
    return true;
  }
  return progress_.wait_for(held, std::chrono::duration<double>(*timeout_s), allowed);
}

bool Shard::reserve_insert(std::unique_lock<std::mutex>& held, uint64_t steps,
                           std::optional<double> timeout_s) {
  if (!wait(held, timeout_s, [&] { return rate_limiter_.may_insert(steps); })) return false;
  rate_limiter_.inserted(steps);
  return true;
}

bool Shard::wait_sample(std::unique_lock<std::mutex>& held, uint64_t count, Unit unit,
                        std::optional<double> timeout_s) {
  const SumTree& offered = unit == Unit::kStep ? index_.anchors() : index_.heads();
  return wait(held, timeout_s,
              [&] { return offered.total() > 0 && rate_limiter_.may_sample(count); });
}

}  // namespace gear::store
