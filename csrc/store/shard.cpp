#include "store/shard.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "base/gpu/devices.h"
#include "base/log.h"

namespace gear::store {
namespace {

uint64_t num_pages(const ShardOptions& options) {
  if (options.capacity < options.page_steps) {
    throw base::InvalidArgument(base::cat(
        "[buffer] capacity ", options.capacity, " is less than one page of ", options.page_steps,
        " steps: raise capacity to ", options.page_steps, " or more, or lower page_steps"));
  }
  return (options.capacity + options.page_steps - 1) / options.page_steps;
}

IndexOptions index_options(const ShardOptions& options) {
  return {num_pages(options), options.page_steps, options.owner, options.evict,
          options.max_times_sampled};
}

// Refuses what cannot be before it takes memory.
Pages make_pages(const Schema& schema, const ShardOptions& options) {
  const PageLayout layout(schema, options.page_steps);
  check_options(index_options(options));
  const uint64_t pages = num_pages(options);
  if (pages > (uint64_t{1} << 62) / layout.page_bytes) {
    throw base::OutOfMemory(base::cat("[buffer] capacity ", options.capacity, " of ",
                                      schema.step_bytes(), " bytes a step is beyond any memory"));
  }
  return {layout, memory::make_region(options.tier, pages * layout.page_bytes,
                                      {options.name, schema.hash(), options.device})};
}

}  // namespace

// The pages come before the index: a size that does not fit is refused before any work is done.
Shard::Shard(Schema schema, const ShardOptions& options, IndexState saved, const Slots& slots)
    : schema_(std::make_shared<Schema>(std::move(schema))),
      options_(options),
      pages_(make_pages(*schema_, options)),
      index_(index_options(options), std::move(saved), slots),
      rate_limiter_(options.rate_limiter),
      default_priorities_(options.page_steps, -1.0F),
      lock_(tickets_) {}

uint64_t Shard::bytes() {
  const auto held = lock();
  return pages_.region().bytes() + index_.bytes() + (publisher_ ? publisher_->bytes() : 0);
}

void Shard::set_rate_limiter(const RateLimiter& limiter) {
  const auto held = lock();
  rate_limiter_ = limiter;
  rate_limiter_.restore(0, std::min(index_.state().counters.steps_inserted, limiter.min_steps()));
  options_.rate_limiter = rate_limiter_;
}

Read Shard::begin_read() {
  const uint64_t ticket = index_.chains_.tick();
  tickets_.begin(ticket);
  return {tickets_, ticket};
}

namespace {

[[noreturn]] void refuse_in_a_draw() {
  throw base::InvalidArgument(
      "[buffer] this call would disturb a draw over all ranks that its own thread makes (it "
      "comes from a signal handler or a finaliser): make it after the loader's next");
}

}  // namespace

void Shard::wait_for_draw(std::unique_lock<std::mutex>& held) {
  while (draw_is_out_) {
    if (drawing_ == std::this_thread::get_id()) {
      refuse_in_a_draw();
    }
    lock_.wait_for_thread(held, [this] { return !draw_is_out_; });
  }
}

std::unique_lock<std::mutex> Shard::lock_between_draws() {
  auto held = lock();
  wait_for_draw(held);
  return held;
}

std::unique_lock<std::mutex> Shard::lock_settled() {
  auto held = lock_between_draws();
  while (!settle(held)) {
    wait_for_draw(held);
  }
  return held;
}

void Shard::begin_draw() {
  GEAR_CHECK(!draw_is_out_);
  draw_is_out_ = true;
  drawing_ = std::this_thread::get_id();
}

void Shard::end_draw() {
  draw_is_out_ = false;
  intake_.apply(index_);
  mirrors_.catch_up();
  tell_readers();
  notify_progress();
}

void Shard::publish_index(std::shared_ptr<memory::Region> memory) {
  GEAR_CHECK(!publisher_);
  publisher_ = std::make_unique<IndexPublisher>(index_, std::move(memory));
}

void Shard::check_rows(std::string_view call) const {
  if (forked() && pages_.region().tier() != memory::Tier::kHost) {
    refuse_rows(origin_, call, pages_.region().tier());
  }
}

void Shard::check_draws(std::string_view call) const {
  check_rows(call);
  if (forked() && options_.max_times_sampled != 0) {
    refuse_draws(origin_, call, "max_times_sampled");
  }
  if (forked() && rate_limiter_.active()) {
    refuse_draws(origin_, call, "a rate_limit");
  }
}

void Shard::tell_readers() {
  if (publisher_) {
    publisher_->publish();
  }
}

uint64_t Shard::update_index(std::span<const int64_t> ids, std::span<const float> priorities) {
  if (!draw_is_out_) {
    return index_.update(ids, priorities);
  }
  const uint64_t applied = index_.check_update(ids, priorities);
  intake_.update(ids, priorities);
  return applied;
}

void Shard::attach_page(std::unique_lock<std::mutex>& held, Place& at, bool closing) {
  for (;;) {
    wait_for_draw(held);
    if (options_.evict == Evict::kLowestPriority && index_.state().free_pages.empty() &&
        !settle(held)) {
      continue;
    }
    if (const auto words = short_episodes_.look(index_)) {
      held.unlock();  // Python may be called to log
      base::log(base::Level::kWarning, *words);
      held = lock();
      continue;
    }
    // While this thread waits without the lock another writer may take the page, so that whichever
    // is next then is looked at anew.
    const uint64_t evicted_at = index_.chains_.evicted_at(index_.next_page(at.episode, closing));
    tell_readers();
    if (tickets_.passed(evicted_at)) {
      at.page = index_.attach_page(at.episode);
      at.uid = index_.episode(at.episode).uid;
      at.row = 0;
      tell_readers();
      pages_.reused(at.page);
      return;
    }
    if (gathering_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
      refuse_in_a_draw();
    }
    held.unlock();
    tickets_.wait_passed(evicted_at);
    held = lock();
  }
}

void Shard::settle_largest(std::unique_lock<std::mutex>& held, std::span<const float> priorities) {
  const auto takes_largest = [](float priority) { return priority < 0; };
  while (index_.state().max_priority == 0 && !mirrors_.settled() &&
         (priorities.empty() || std::ranges::any_of(priorities, takes_largest))) {
    wait_for_draw(held);
    static_cast<void>(settle(held));  // false: the draw that is out is waited for
  }
}

void Shard::add(Place& at, uint64_t count, std::span<const float> priorities) {
  if (priorities.empty()) {
    priorities = std::span(default_priorities_).first(count);
  }
  at.row += count;
  if (draw_is_out_) {
    intake_.append(at.episode, priorities);
  } else {
    index_.append(at.episode, priorities);
  }
}

void Shard::publish(Place& at, uint64_t count, std::span<const float> priorities) {
  add(at, count, priorities);
  tell();
}

void Shard::publish(std::span<Place* const> places, std::span<const float> priorities) {
  const auto expect = [&](uint64_t i) {
    if (i < places.size()) {
      index_.expect_append(places[i]->episode,
                           {places[i]->page, static_cast<uint32_t>(places[i]->row)});
    }
  };
  for (uint64_t i = 0; i < Index::kAppendsAhead; ++i) {
    expect(i);
  }
  for (uint64_t i = 0; i < places.size(); ++i) {
    expect(i + Index::kAppendsAhead);
    add(*places[i], 1, priorities.empty() ? priorities : priorities.subspan(i, 1));
  }
  tell();
}

void Shard::publish(std::span<const End> ends, uint64_t closing_columns) {
  for (const End& end : ends) {
    if (draw_is_out_) {
      intake_.end_episode(end.at->episode, end.state, end.weight, closing_columns);
    } else {
      index_.end_episode(end.at->episode, end.state, end.weight, closing_columns);
    }
    *end.at = {};
  }
  tell();
}

void Shard::tell() {
  if (!draw_is_out_) {
    tell_readers();
    notify_progress();
  }
}

uint64_t Shard::wait_insert(std::unique_lock<std::mutex>& held, std::optional<double> timeout_s) {
  uint64_t room = 0;
  lock_.wait(held, timeout_s, [&] { return (room = rate_limiter_.room()) > 0; });
  return room;
}

bool Shard::wait_sample(std::unique_lock<std::mutex>& held, uint64_t count, const SumTree* offered,
                        std::optional<double> timeout_s) {
  return lock_.wait(held, timeout_s, [&] {
    return (offered == nullptr || (!draw_is_out_ && offered->total() > 0)) &&
           rate_limiter_.may_sample(count);
  });
}

TakenDraws Shard::commit(std::unique_lock<std::mutex>& held, uint64_t items, Read* read) {
  rate_limiter_.taken(items);
  TakenDraws draws = index_.take_draws();
  draws.items = items;
  if (read != nullptr) {
    *read = begin_read();
  }
  held.unlock();
  notify_progress();
  return draws;
}

void Shard::deliver(TakenDraws draws) {
  const auto held = lock();
  rate_limiter_.delivered(draws.items);
  if (draw_is_out_ && !draws.uses.empty()) {
    intake_.deliver(std::move(draws));
  } else {
    index_.deliver(draws);
  }
}

void Shard::give_back(TakenDraws draws) {
  if (forked()) {
    return;  // to whom: the copy ends with this process
  }
  auto held = lock();
  rate_limiter_.given_back(draws.items);
  if (draw_is_out_ && !draws.uses.empty()) {
    intake_.give_back(std::move(draws));
  } else {
    index_.give_back(draws);
  }
  held.unlock();
  notify_progress();
}

TakenDraws Shard::take_again(std::span<const uint64_t> uses, uint64_t draws, uint64_t items,
                             Unit unit) {
  const auto held = lock_between_draws();
  rate_limiter_.taken(items);
  TakenDraws taken = index_.take_again(uses, draws, unit);
  taken.items = items;
  return taken;
}

std::shared_ptr<Mirror> Shard::mirror(int device) {
  if (auto there = mirrors_.find(device)) {
    return there;
  }
  if (!draw_is_out_) {
    mirrors_.forget_unused();
  }
  return mirrors_.add(make_mirror(index_, device, pages_.row_sink()));
}

bool Shard::settle(std::unique_lock<std::mutex>& held) {
  if (!draw_is_out_ && !mirrors_.all().empty()) {
    if (forked()) {
      refuse_priorities(origin_);
    }
    const auto marked = mirrors_.mark();
    wait_for_gpu(held, [&] { return std::ranges::all_of(marked, &Mirror::reached); });
  }
  if (draw_is_out_) {
    return false;
  }
  mirrors_.settle();
  return true;
}

std::vector<std::shared_ptr<Mirror>> Shard::mirrors_to_update(std::unique_lock<std::mutex>& held) {
  std::vector<std::shared_ptr<Mirror>> holding;
  wait_for_gpu(held, [&] {
    holding = mirrors_.holding_priorities();
    return std::ranges::all_of(holding, &Mirror::has_room);
  });
  mirrors_.raise_failed_updates();
  return holding;
}

void Shard::give(std::span<const std::shared_ptr<Mirror>> mirrors,
                 const std::function<void(Mirror&)>& update) {
  mirrors_.give(mirrors, update);
  if (!draw_is_out_) {
    mirrors_.catch_up();
  }
}

uint64_t Shard::update(std::span<const int64_t> ids, std::span<const float> priorities) {
  check_process("update");
  auto held = lock();
  const auto mirrors = mirrors_to_update(held);
  if (mirrors.empty()) {
    return update_index(ids, priorities);
  }
  const uint64_t applied = index_.check_update(ids, priorities);
  give(mirrors,
       [&](Mirror& mirror) { mirror.update(ids.data(), priorities.data(), ids.size(), false, 0); });
  return applied;
}

void Shard::update_from_device(const int64_t* ids, const float* priorities, uint64_t count,
                               uintptr_t stream) {
  check_process("update");
  {
    auto held = lock();
    const auto mirrors = mirrors_to_update(held);
    give(mirrors, [&](Mirror& mirror) { mirror.update(ids, priorities, count, true, stream); });
    if (!mirrors.empty()) {
      return;
    }
  }
  update(base::fetched(ids, count, stream), base::fetched(priorities, count, stream));
}

}  // namespace gear::store
