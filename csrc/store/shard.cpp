#include "store/shard.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/devices.h"
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
      rate_limiter_(options.rate_limiter) {
  open_rows();
}

Shard::Shard(Schema schema, const ShardOptions& options, IndexState state)
    : schema_(std::make_shared<Schema>(std::move(schema))),
      options_(options),
      layout_(*schema_, options.page_steps),
      region_(make_region(*schema_, layout_, options)),
      index_(index_options(options), std::move(state)),
      rate_limiter_(options.rate_limiter) {
  open_rows();
}

void Shard::open_rows() {
  if (region_->host_accessible()) {
    return;
  }
  rows_ = make_row_sink(*region_, layout_.page_bytes, mirror(region_->device()));
}

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

void Shard::end_read_when(uint64_t ticket, std::shared_ptr<const ReadEnd> end) {
  {
    const std::lock_guard guard(reading_mutex_);
    ending_.emplace_back(ticket, std::move(end));
  }
  reads_done_.notify_all();
}

void Shard::poll_reads() {
  {
    const std::lock_guard guard(reading_mutex_);
    release_ended_reads();
  }
  reads_done_.notify_all();
}

void Shard::release_ended_reads() {
  std::erase_if(ending_, [this](const auto& read) {
    if (!read.second->done()) {
      return false;
    }
    reading_.erase(std::find(reading_.begin(), reading_.end(), read.first));
    return true;
  });
}

template <class Unread>
void Shard::wait_for_readers(std::unique_lock<std::mutex>& reading, Unread unread) {
  constexpr std::chrono::microseconds kPoll{50};  // of reads that end on a device
  const base::Blocking waiting;
  while (!unread()) {
    if (ending_.empty()) {
      reads_done_.wait(reading);
    } else {
      for (const auto& read : ending_) {
        read.second->hurry();
      }
      reads_done_.wait_for(reading, kPoll);
      release_ended_reads();
    }
  }
  reading.unlock();
}

void Shard::wait_for_draw(std::unique_lock<std::mutex>& held) {
  while (draw_is_out_) {
    if (drawing_ == std::this_thread::get_id()) {
      throw base::InvalidArgument(
          "[store] this thread is in the middle of a draw over all ranks (a signal handler or a "
          "finaliser runs in it), and what was asked for would change what may be drawn: do it "
          "after the loader's next");
    }
    {
      const base::Blocking waiting;
      progress_.wait(held, [this] { return !draw_is_out_; });
      held.unlock();
    }
    held = lock();
  }
}

std::unique_lock<std::mutex> Shard::lock_between_draws() {
  auto held = lock();
  wait_for_draw(held);
  return held;
}

void Shard::begin_draw() {
  GEAR_CHECK(!draw_is_out_);
  draw_is_out_ = true;
  drawing_ = std::this_thread::get_id();
}

void Shard::end_draw() {
  draw_is_out_ = false;
  for (const auto& change : std::exchange(intake_, {})) {
    change();
  }
  notify_progress();
}

void Shard::append(uint32_t episode, std::span<const float> priorities) {
  if (!draw_is_out_) {
    index_.append(episode, priorities);
    return;
  }
  intake_.push_back([this, episode, kept = std::vector(priorities.begin(), priorities.end())] {
    index_.append(episode, kept);
  });
}

void Shard::end_episode(uint32_t episode, EpisodeState state, double weight,
                        uint64_t closing_columns) {
  if (!draw_is_out_) {
    index_.end_episode(episode, state, weight, closing_columns);
    return;
  }
  intake_.push_back([this, episode, state, weight, closing_columns] {
    index_.end_episode(episode, state, weight, closing_columns);
  });
}

uint64_t Shard::update_index(std::span<const int64_t> ids, std::span<const float> priorities) {
  if (!draw_is_out_) {
    return index_.update(ids, priorities);
  }
  const uint64_t applied = index_.check_update(ids, priorities);
  intake_.push_back([this, kept_ids = std::vector(ids.begin(), ids.end()),
                     kept = std::vector(priorities.begin(), priorities.end())] {
    index_.update(kept_ids, kept);
  });
  return applied;
}

uint32_t Shard::attach_page(std::unique_lock<std::mutex>& held, uint32_t episode) {
  for (;;) {
    wait_for_draw(held);
    if (options_.evict == Evict::kLowestPriority && index_.state().free_pages.empty()) {
      settle();
    }
    // While this thread waits without the lock another writer may take the page, so that whichever
    // is next then is looked at anew.
    const uint64_t evicted_at = index_.evicted_at(index_.next_free_page(episode));
    const auto unread = [&] { return reading_.empty() || reading_.front() > evicted_at; };
    std::unique_lock reading(reading_mutex_);
    if (!unread()) {
      release_ended_reads();
    }
    if (unread()) {
      const uint32_t page = index_.attach_page(episode);
      if (rows_) {
        rows_->reused(page);
      }
      return page;
    }
    held.unlock();
    wait_for_readers(reading, unread);
    held = lock();
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
  if (!wait(held, timeout_s, [&] { return rate_limiter_.may_insert(steps); })) {
    return false;
  }
  rate_limiter_.inserted(steps);
  return true;
}

bool Shard::wait_sample(std::unique_lock<std::mutex>& held, uint64_t count, Unit unit,
                        std::optional<double> timeout_s) {
  const SumTree& offered = unit == Unit::kStep ? index_.anchors() : index_.heads();
  return wait(held, timeout_s, [&] {
    return !draw_is_out_ && offered.total() > 0 && rate_limiter_.may_sample(count);
  });
}

bool Shard::wait_sample_elsewhere(std::unique_lock<std::mutex>& held, uint64_t count,
                                  std::optional<double> timeout_s) {
  return wait(held, timeout_s,
              [&] { return !rate_limiter_.active() || rate_limiter_.may_sample(count); });
}

Mirror& Shard::mirror(int device) {
  for (const auto& mirror : mirrors_) {
    if (mirror->device() == device) {
      return *mirror;
    }
  }
  mirrors_.push_back(make_mirror(index_, device));
  return *mirrors_.back();
}

bool Shard::mirrors_hold_priorities() const {
  return std::any_of(mirrors_.begin(), mirrors_.end(),
                     [](const auto& mirror) { return mirror->holds_priorities(); });
}

void Shard::raise_failed_updates() {
  for (const auto& mirror : mirrors_) {
    mirror->raise_failed_update();
  }
}

void Shard::settle() {
  if (draw_is_out_) {
    return;
  }
  // Every mirror that is ahead took the same updates: one speaks for all.
  bool settled = false;
  for (const auto& mirror : mirrors_) {
    const bool ahead = mirror->ahead();
    if (ahead && settled) {
      mirror->settled_elsewhere();
    } else {
      mirror->settle();
    }
    settled = settled || ahead;
  }
}

uint64_t Shard::update(std::span<const int64_t> ids, std::span<const float> priorities) {
  raise_failed_updates();
  if (!mirrors_hold_priorities()) {
    return update_index(ids, priorities);
  }
  const uint64_t applied = index_.check_update(ids, priorities);
  for (const auto& mirror : mirrors_) {
    if (!mirror->holds_priorities()) {
      continue;
    }
    mirror->update(ids.data(), priorities.data(), ids.size(), false, 0);
  }
  return applied;
}

void Shard::update_from_device(const int64_t* ids, const float* priorities, uint64_t count,
                               uintptr_t stream) {
  raise_failed_updates();
  if (!mirrors_hold_priorities()) {
    std::vector<int64_t> host_ids(count);
    std::vector<float> host_priorities(count);
    base::fetch(std::as_writable_bytes(std::span(host_ids)), ids, stream);
    base::fetch(std::as_writable_bytes(std::span(host_priorities)), priorities, stream);
    update_index(host_ids, host_priorities);
    return;
  }
  for (const auto& mirror : mirrors_) {
    if (mirror->holds_priorities()) {
      mirror->update(ids, priorities, count, true, stream);
    }
  }
}

void Shard::write_rows(uint64_t offset, const std::byte* source, uint64_t bytes) {
  if (rows_) {
    rows_->write(offset, source, bytes);
  } else if (source) {
    std::memcpy(region_->data() + offset, source, bytes);
  } else {
    std::memset(region_->data() + offset, 0, bytes);
  }
}

void Shard::finish_rows() {
  if (rows_) {
    rows_->finish();
  }
}

}  // namespace gear::store
