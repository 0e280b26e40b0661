#include "store/shard.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "base/files/crc32c.h"
#include "base/gpu/devices.h"

namespace gear::store {
namespace {

// Taking the lock waits for the stores before it, which miss in a page that was long unused: up to
// this many bytes, copying under one lock is over sooner than taking it once a page.
constexpr uint64_t kCopyLocked = 32 << 10;

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

std::unique_ptr<memory::Region> make_region(const Schema& schema, const PageLayout& layout,
                                            const ShardOptions& options) {
  check_options(index_options(options));
  const uint64_t pages = num_pages(options);
  if (pages > (uint64_t{1} << 62) / layout.page_bytes) {
    throw base::OutOfMemory(base::cat("[buffer] capacity ", options.capacity, " of ",
                                      schema.step_bytes(), " bytes a step is beyond any memory"));
  }
  return memory::make_region(options.tier, pages * layout.page_bytes,
                             {options.name, schema.hash(), options.device});
}

uint32_t checksum_of_row(Shard::Rows columns, const PageLayout& layout) {
  uint32_t checksum = 0;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c] != nullptr) {
      checksum = base::crc32c(columns[c], layout.step_bytes[c], checksum);
    }
  }
  return checksum;
}

}  // namespace

// The region comes before the index: a size that does not fit is refused before any work is done.
Shard::Shard(Schema schema, const ShardOptions& options, IndexState saved, const Slots& slots)
    : schema_(std::make_shared<Schema>(std::move(schema))),
      options_(options),
      layout_(*schema_, options.page_steps),
      region_(make_region(*schema_, layout_, options)),
      index_(index_options(options), std::move(saved), slots),
      rate_limiter_(options.rate_limiter),
      default_priorities_(layout_.page_steps, -1.0F),
      lock_(tickets_) {
  if (!region_->host_accessible()) {
    rows_ = make_row_sink(*region_, layout_.page_bytes);
  }
}

uint64_t Shard::bytes() {
  const auto held = lock();
  return region_->bytes() + index_.bytes() + (publisher_ ? publisher_->bytes() : 0);
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

void Shard::wait_for_draw(std::unique_lock<std::mutex>& held) {
  while (draw_is_out_) {
    if (drawing_ == std::this_thread::get_id()) {
      throw base::InvalidArgument(
          "[buffer] this call would disturb a draw over all ranks that its own thread makes (it "
          "comes from a signal handler or a finaliser): make it after the loader's next");
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

void Shard::refuse_change(std::string_view call) const {
  throw base::InvalidArgument(base::cat(
      "[buffer] ", call, ": this buffer ", origin_.text(),
      ", where a change would be lost or would spoil the stored steps of the other: let an actor ",
      "in a child process make a buffer of its own, or send its steps to the process that made ",
      "this one (by a multiprocessing.Queue, say), whose writer appends them; processes that ",
      "share one buffer are the ranks of a gear.Group"));
}

void Shard::check_rows(std::string_view call) const {
  if (!forked() || region_->tier() == memory::Tier::kHost) {
    return;
  }
  throw base::InvalidArgument(base::cat(
      "[buffer] ", call, ": this buffer ", origin_.text(), "; its rows lie on tier '",
      memory::kTiers.name(region_->tier()),
      "', where the other goes on writing them, so that they would not be those of their ids: ",
      "read them in the process that made the buffer and send the batches, or give the buffer ",
      "tier='host', of which a forked process has a copy as it was when it was forked"));
}

void Shard::check_draws(std::string_view call) const {
  check_rows(call);
  if (!forked() || (options_.max_times_sampled == 0 && !rate_limiter_.active())) {
    return;
  }
  throw base::InvalidArgument(base::cat(
      "[buffer] ", call, ": this buffer ", origin_.text(), "; it has ",
      options_.max_times_sampled == 0 ? "a rate_limit" : "max_times_sampled",
      ", and the other would not count what is drawn here: draw in the process that made the ",
      "buffer and send the batches"));
}

void Shard::tell_readers() {
  if (publisher_) {
    publisher_->publish();
  }
}

Shard::Place Shard::adopt(uint64_t uid) {
  const std::optional<uint64_t> one = uid;
  return adopt({&one, 1})[0];
}

std::vector<Shard::Place> Shard::adopt(std::span<const std::optional<uint64_t>> uids) {
  check_process("writer");
  const auto held = lock();
  std::vector<Place> places(uids.size());
  try {
    for (size_t i = 0; i < uids.size(); ++i) {
      if (uids[i]) {
        const uint32_t episode = index_.adopt_episode(*uids[i]);
        const uint32_t page = index_.episode(episode).tail;
        places[i] = {episode, *uids[i], page, index_.page(page).rows};
      }
    }
  } catch (...) {
    for (const Place& place : places) {
      if (place.episode != kNone) {
        index_.leave_episode(place.episode);
      }
    }
    throw;
  }
  return places;
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
    if (index_.state().free_pages.empty() && index_.state().num_steps < index_.num_slots() / 2 &&
        short_episodes_ == ShortEpisodes::kUnseen) {
      short_episodes_ = ShortEpisodes::kSeen;
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
      if (rows_) {
        rows_->reused(at.page);
      }
      return;
    }
    held.unlock();
    tickets_.wait_passed(evicted_at);
    held = lock();
  }
}

std::optional<std::string> Shard::short_episodes() {
  if (short_episodes_.load(std::memory_order_relaxed) != ShortEpisodes::kSeen) {
    return std::nullopt;
  }
  const auto held = lock();
  if (short_episodes_.exchange(ShortEpisodes::kTold) != ShortEpisodes::kSeen) {
    return std::nullopt;
  }
  const IndexState& state = index_.state();
  const uint64_t mean = state.num_steps / std::max<uint64_t>(state.num_episodes, 1);
  return base::cat(
      "[buffer] pages are freed, and ", state.num_steps, " of ", index_.num_slots(),
      " steps are stored: an episode's pages hold no other's steps, and the ", state.num_episodes,
      " episodes, of ", mean, " steps each or so, leave most of a ", "page of ", layout_.page_steps,
      " empty; give the buffer page_steps=", std::max<uint64_t>(std::bit_floor(mean / 4), 1));
}

// Room for up to `wanted` rows behind the last step of `at`; 0 when the rate limiter let none in.
uint64_t Shard::lease(std::unique_lock<std::mutex>& held, Place& at, uint64_t wanted,
                      std::optional<double> timeout_s) {
  for (;;) {
    if (!wait(held, timeout_s, [&] { return rate_limiter_.room() > 0; })) {
      return 0;
    }
    if (!has_room(at)) {
      attach_page(held, at, false);  // without the lock for a while
      continue;
    }
    uint64_t rows = std::min({wanted, layout_.page_steps - at.row, rate_limiter_.room()});
    if (!rows_) {
      return rows;
    }
    rows = std::min(rows, std::max<uint64_t>(1, RowSink::kMostBytes / schema_->step_bytes()));
    const uint64_t bytes =
        rows * schema_->step_bytes() + layout_.step_bytes.size() * RowSink::kCallBytes;
    if (sink_has_room(bytes)) {
      return rows;
    }
    wait_for_sink(held, bytes);
  }
}

// A step that is larger than what the sink speaks of waits where it is written.
bool Shard::sink_has_room(uint64_t bytes) const {
  return !rows_ || rows_->has_room(std::min(bytes, RowSink::kMostBytes));
}

void Shard::wait_for_sink(std::unique_lock<std::mutex>& held, uint64_t bytes) {
  wait_for_gpu(held, [&] { return sink_has_room(bytes); });
}

// What a row of an environment takes of the sink.
uint64_t Shard::sink_bytes(uint64_t on_device) const {
  uint64_t bytes = on_device == 0 ? 0 : sizeof(RowSink::RowMove);
  for (size_t c = 0; c < layout_.step_bytes.size(); ++c) {
    bytes += (on_device >> c & 1) != 0 ? 0 : layout_.step_bytes[c] + RowSink::kCallBytes;
  }
  return bytes;
}

// Room for a row behind the last step of each, as many of the first ones as the rate limiter lets
// in; 0 when it let in none. Throws before anything is stored.
uint64_t Shard::lease(std::unique_lock<std::mutex>& held, std::span<Place* const> places,
                      uint64_t on_device, std::optional<double> timeout_s) {
  uint64_t wanted = places.size();
  const uint64_t each = sink_bytes(on_device);
  if (rows_) {
    wanted = std::min(wanted, std::max<uint64_t>(1, RowSink::kMostBytes / each));
  }
  for (;;) {
    if (!wait(held, timeout_s, [&] { return rate_limiter_.room() > 0; })) {
      return 0;
    }
    uint64_t rows = std::min(wanted, rate_limiter_.room());
    for (Place* at : places.first(rows)) {
      if (!has_room(*at)) {
        attach_page(held, *at, false);  // without the lock for a while
      }
    }
    rows = std::min(rows, rate_limiter_.room());
    if (rows > 0 && sink_has_room(rows * each)) {
      return rows;
    }
    wait_for_sink(held, rows * each);
  }
}

// On tier kDevice under the lock, else also without it. Without a source they are zero: no bytes of
// what lay here before.
void Shard::copy_rows(const Place& at, size_t column, const std::byte* source, uint64_t rows) {
  const uint64_t bytes = rows * layout_.step_bytes[column];
  const uint64_t offset = layout_.offset(at.page, column, at.row);
  if (rows_) {
    rows_->write(offset, source, bytes);
  } else if (source != nullptr) {
    std::memcpy(region_->data() + offset, source, bytes);
  } else {
    std::memset(region_->data() + offset, 0, bytes);
  }
}

void Shard::copy_rows(const Place& at, Rows columns, uint64_t from, uint64_t rows) {
  for (size_t c = 0; c < columns.size(); ++c) {
    copy_rows(at, c, row_of(columns, c, from), rows);
  }
}

// Of each column one row to each place, which at(i) names with the row that it comes from: column
// by column, so that the host reads a column from its begin to its end.
template <class At>
void Shard::copy_rows(const EnvironmentRows& given, uint64_t count, At at) {
  device_columns_.clear();
  for (size_t c = 0; c < given.columns.size(); ++c) {
    if ((given.on_device >> c & 1) != 0) {
      device_columns_.push_back(
          {given.columns[c], layout_.column_offset[c], layout_.step_bytes[c]});
      continue;
    }
    for (uint64_t i = 0; i < count; ++i) {
      const auto [place, row] = at(i);
      copy_rows(*place, c, row_of(given.columns, c, row), 1);
    }
  }
  if (device_columns_.empty()) {
    return;
  }
  moves_.resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    const auto [place, row] = at(i);
    moves_[i] = {place->page, static_cast<uint32_t>(place->row), static_cast<uint32_t>(row)};
  }
  given.taken->begin_read();
  rows_->write_rows(device_columns_, moves_);
  given.taken->end_read();
}

const std::byte* Shard::row_of(Rows columns, size_t column, uint64_t row) const {
  return columns[column] == nullptr ? nullptr : columns[column] + row * layout_.step_bytes[column];
}

std::vector<const std::byte*> Shard::row_of_all(Rows columns, uint64_t row) const {
  std::vector<const std::byte*> rows(columns.size());
  for (size_t c = 0; c < rows.size(); ++c) {
    rows[c] = row_of(columns, c, row);
  }
  return rows;
}

// The rows behind `at` hold steps with these priorities.
void Shard::publish(Place& at, std::span<const float> priorities) {
  at.row += priorities.size();
  if (draw_is_out_) {
    intake_.append(at.episode, priorities);
  } else {
    index_.append(at.episode, priorities);
  }
}

void Shard::publish_end(Place& at, EpisodeState state, double weight, uint64_t closing_columns) {
  if (draw_is_out_) {
    intake_.end_episode(at.episode, state, weight, closing_columns);
  } else {
    index_.end_episode(at.episode, state, weight, closing_columns);
  }
  at = {};
}

// After one or several of them.
void Shard::tell() {
  if (!draw_is_out_) {
    tell_readers();
    notify_progress();
  }
}

uint64_t Shard::columns_given(Rows closing) {
  uint64_t columns = 0;
  for (size_t c = 0; c < closing.size(); ++c) {
    columns |= uint64_t{closing[c] != nullptr} << c;
  }
  return columns;
}

bool Shard::append(Place& at, Rows columns, uint64_t count, std::span<const float> priorities,
                   uint64_t& done, std::optional<double> timeout_s) {
  check_process("append");
  GEAR_CHECK(columns.size() == layout_.step_bytes.size());
  GEAR_CHECK(priorities.empty() || priorities.size() == count);
  const bool locked = copies_locked(count);
  auto held = lock();
  while (done < count) {
    const uint64_t rows = lease(held, at, count - done, timeout_s);
    if (rows == 0) {
      return false;
    }
    if (is_new()) {
      index_.identify(checksum_of_row(columns, layout_));
    }
    if (locked) {
      copy_rows(at, columns, done, rows);  // may fail on a GPU: counted behind it
      rate_limiter_.inserted(rows);
    } else {
      rate_limiter_.inserted(rows);  // before others look for room
      held.unlock();
      copy_rows(at, columns, done, rows);
      held = lock();
    }
    publish(at, priorities.empty() ? std::span<const float>(default_priorities_).first(rows)
                                   : priorities.subspan(done, rows));
    tell();
    done += rows;
  }
  return true;
}

bool Shard::append(const EnvironmentSteps& steps, uint64_t& done, std::optional<double> timeout_s) {
  check_process("append");
  GEAR_CHECK(steps.given.columns.size() == layout_.step_bytes.size());
  GEAR_CHECK(steps.priorities.empty() || steps.priorities.size() == steps.places.size());
  std::optional<uint32_t> checksum;
  if (steps.given.on_device != 0) {
    checksum = checksum_on_device(steps);
  }
  auto held = lock();
  const auto left = [&] { return steps.places.subspan(done); };
  try {
    require_pages(held, left());
    while (done < steps.places.size()) {
      const uint64_t count = lease(held, left(), steps.given.on_device, timeout_s);
      if (count == 0) {
        leave_unfilled(left());
        return false;
      }
      append(held, steps, done, count, checksum);
      done += count;
      tell();
    }
  } catch (...) {
    if (!held) {
      held = lock();
    }
    leave_unfilled(left());
    throw;
  }
  return true;
}

// What the first step of all tells of a buffer: of rows on a GPU the host has to wait for them,
// once in the buffer's life, and without the lock.
std::optional<uint32_t> Shard::checksum_on_device(const EnvironmentSteps& steps) {
  {
    const auto held = lock();
    if (!is_new() || steps.places.empty()) {
      return std::nullopt;
    }
  }
  std::vector<const std::byte*> row = row_of_all(steps.given.columns, steps.rows[0]);
  std::vector<std::vector<std::byte>> fetched(row.size());
  for (size_t c = 0; c < row.size(); ++c) {
    if ((steps.given.on_device >> c & 1) != 0) {
      fetched[c].resize(layout_.step_bytes[c]);
      steps.given.taken->fetch(fetched[c], row[c]);
      row[c] = fetched[c].data();
    }
  }
  return checksum_of_row(row, layout_);
}

// Of the places from `first` on, that many, which have room.
void Shard::append(std::unique_lock<std::mutex>& held, const EnvironmentSteps& steps,
                   uint64_t first, uint64_t count, std::optional<uint32_t> checksum) {
  const auto places = steps.places.subspan(first, count);
  const auto rows = steps.rows.subspan(first, count);
  if (is_new()) {
    index_.identify(checksum ? *checksum
                             : checksum_of_row(row_of_all(steps.given.columns, rows[0]), layout_));
  }
  const bool locked = copies_locked(count);
  if (!locked) {
    rate_limiter_.inserted(count);  // before others look for room
    held.unlock();
  }
  copy_rows(steps.given, count, [&](uint64_t i) { return std::pair(places[i], rows[i]); });
  if (locked) {
    rate_limiter_.inserted(count);
  } else {
    held = lock();
  }
  const auto expect = [&](uint64_t i) {
    if (i < count) {
      index_.expect_append(places[i]->episode,
                           {places[i]->page, static_cast<uint32_t>(places[i]->row)});
    }
  };
  for (uint64_t i = 0; i < Index::kAppendsAhead; ++i) {
    expect(i);
  }
  for (uint64_t i = 0; i < count; ++i) {
    expect(i + Index::kAppendsAhead);
    publish(*places[i], steps.priorities.empty()
                            ? std::span<const float>(default_priorities_).first(1)
                            : steps.priorities.subspan(first + i, 1));
  }
}

// Refuses what cannot end well before a page goes for it. Of those that have an episode each gets
// its next page: in the worst case for the one that it has.
void Shard::require_pages(std::unique_lock<std::mutex>& held, std::span<Place* const> places) {
  const auto opening = static_cast<uint64_t>(
      std::ranges::count_if(places, [](const Place* at) { return at->episode == kNone; }));
  if (opening == 0) {
    return;
  }
  wait_for_draw(held);  // behind which episodes may have ended
  const uint64_t open = index_.chains_.num_open();
  const uint64_t pages = index_.options().num_pages;
  if (open + opening > pages) {
    throw base::OutOfMemory(base::cat(
        "[buffer] ", opening, " environments open an episode each, and of ", pages, " pages of ",
        layout_.page_steps, " steps only ", pages - open, " can be had: ", open, " are the last ",
        "ones of open episodes, of this writer or another; nothing of this call is stored: raise ",
        "capacity to ", (open + opening + 1) * layout_.page_steps,
        " or more, lower page_steps or run fewer environments"));
  }
}

// Takes back the episodes that were opened for these places and have no step yet.
void Shard::leave_unfilled(std::span<Place* const> places) {
  for (Place* at : places) {
    if (at->episode != kNone && at->row == 0 && index_.episode(at->episode).end == 0) {
      publish_end(*at, EpisodeState::kTruncated, -1.0, 0);
    }
  }
  tell();
}

// A few rows; on tier kDevice all, of which the copy is only begun here.
bool Shard::copies_locked(uint64_t rows) const {
  return rows_ != nullptr || rows * schema_->step_bytes() <= kCopyLocked;
}

void Shard::end_episodes(std::span<const EnvironmentEnd> ends, const EnvironmentRows& closing) {
  check_process("end_episode");
  const bool closes = !closing.columns.empty();
  const bool locked = copies_locked(ends.size());
  auto held = lock();
  while (!ends.empty()) {
    const uint64_t count = closes ? lease_closing(held, ends) : ends.size();
    if (closes) {
      copy_closing(held, locked, ends.first(count), closing);
    }
    for (const EnvironmentEnd& end : ends.first(count)) {
      publish_end(*end.at, end.state, end.weight, columns_given(closing.columns));
    }
    ends = ends.subspan(count);
    tell();
  }
}

// Room for the first one's closing step, and for those of as many behind it as have room at once:
// who needs a page may take one of an episode that has just ended.
uint64_t Shard::lease_closing(std::unique_lock<std::mutex>& held,
                              std::span<const EnvironmentEnd> ends) {
  if (!has_room(*ends[0].at)) {
    attach_page(held, *ends[0].at, true);
  }
  const auto end = std::find_if(ends.begin() + 1, ends.end(),
                                [this](const EnvironmentEnd& one) { return !has_room(*one.at); });
  return static_cast<uint64_t>(end - ends.begin());
}

void Shard::copy_closing(std::unique_lock<std::mutex>& held, bool locked,
                         std::span<const EnvironmentEnd> ends, const EnvironmentRows& closing) {
  if (!locked) {
    held.unlock();
  }
  const uint64_t each = sink_bytes(closing.on_device);
  const uint64_t most = rows_ ? std::max<uint64_t>(1, RowSink::kMostBytes / each) : ends.size();
  for (; !ends.empty(); ends = ends.subspan(std::min(ends.size(), most))) {
    const uint64_t count = std::min(ends.size(), most);
    if (locked) {
      wait_for_sink(held, count * each);
    }
    copy_rows(closing, count, [&](uint64_t i) { return std::pair(ends[i].at, ends[i].row); });
  }
  if (!locked) {
    held = lock();
  }
}

void Shard::end_episode(Place& at, EpisodeState state, double weight, Rows closing) {
  const EnvironmentEnd end{&at, 0, state, weight};
  end_episodes({&end, 1}, {closing});
}

std::unique_ptr<TakenArrays> Shard::make_taken_arrays() {
  return rows_ ? store::make_taken_arrays(*rows_) : nullptr;
}

bool Shard::wait_sample(std::unique_lock<std::mutex>& held, uint64_t count, const SumTree* offered,
                        std::optional<double> timeout_s) {
  return wait(held, timeout_s, [&] {
    return (offered == nullptr || (!draw_is_out_ && offered->total() > 0)) &&
           rate_limiter_.may_sample(count);
  });
}

TakenDraws Shard::take(uint64_t items) {
  rate_limiter_.taken(items);
  TakenDraws draws = index_.take_draws();
  draws.items = items;
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
  return mirrors_.add(make_mirror(index_, device, rows_.get()));
}

bool Shard::settle(std::unique_lock<std::mutex>& held) {
  if (!draw_is_out_ && !mirrors_.all().empty()) {
    if (forked()) {
      throw base::InvalidArgument(base::cat(
          "[buffer] this buffer ", origin_.text(), "; its priorities lie on a GPU, which a forked ",
          "process cannot use: ask for them in the process that made the buffer"));
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

void Shard::flush_rows() {
  if (rows_) {
    rows_->flush();
  }
}

void Shard::wait_rows() {
  if (rows_) {
    rows_->wait();
  }
}

}  // namespace gear::store
