#include "store/writing/appender.h"

#include <algorithm>

#include "base/errors.h"

namespace gear::store {
namespace {

// Taking the lock waits for the stores before it, which miss in a page that was long unused: up to
// this many bytes, copying under one lock is over sooner than taking it once a page.
constexpr uint64_t kCopyLocked = 32 << 10;

// 32 bits hold both rows: of a page, and of a call, whose environments are fewer than the pages.
RowSink::RowMove move_to(const Shard::Place& at, uint64_t source) {
  return {at.page, static_cast<uint32_t>(at.row), static_cast<uint32_t>(source)};
}

uint64_t columns_given(Pages::Rows closing) {
  uint64_t columns = 0;
  for (size_t c = 0; c < closing.size(); ++c) {
    columns |= uint64_t{closing[c] != nullptr} << c;
  }
  return columns;
}

}  // namespace

Appender::Appender(Shard& shard)
    : shard_(shard),
      most_locked_(shard.pages().row_sink() != nullptr
                       ? UINT64_MAX
                       : kCopyLocked / shard.schema().step_bytes()) {}

Appender::Place Appender::adopt(uint64_t uid) {
  const std::optional<uint64_t> one = uid;
  return adopt({&one, 1})[0];
}

std::vector<Appender::Place> Appender::adopt(std::span<const std::optional<uint64_t>> uids) {
  shard_.check_process("writer");
  const auto held = shard_.lock();
  Index& index = shard_.index();
  std::vector<Place> places(uids.size());
  try {
    for (size_t i = 0; i < uids.size(); ++i) {
      if (uids[i]) {
        const uint32_t episode = index.adopt_episode(*uids[i]);
        const uint32_t page = index.episode(episode).tail;
        places[i] = {episode, *uids[i], page, index.page(page).rows};
      }
    }
  } catch (...) {
    for (const Place& place : places) {
      if (place.episode != kNone) {
        index.leave_episode(place.episode);
      }
    }
    throw;
  }
  return places;
}

bool Appender::is_new() const {
  const IndexState& state = shard_.index().state();
  return state.identity == 0 && state.counters.steps_inserted == 0;
}

bool Appender::has_room(const Place& at) const {
  return at.page != kNone && at.row < shard_.layout().page_steps;
}

void Appender::wait_for_sink(Lock& held, uint64_t bytes) {
  shard_.wait_for_gpu(held, [&] { return shard_.pages().has_room(bytes); });
}

// Room for up to `wanted` rows behind the last step of `at`; 0 when the rate limiter let none in.
uint64_t Appender::lease(Lock& held, Place& at, uint64_t wanted, std::optional<double> timeout_s) {
  const Pages& pages = shard_.pages();
  for (;;) {
    const uint64_t room = shard_.wait_insert(held, timeout_s);
    if (room == 0) {
      return 0;
    }
    if (!has_room(at)) {
      shard_.attach_page(held, at, false);  // without the lock for a while
      continue;
    }
    const uint64_t rows = std::min({wanted, pages.layout().page_steps - at.row, room,
                                    pages.most_rows(shard_.schema().step_bytes())});
    const uint64_t bytes = pages.sink_bytes_of_rows(rows);
    if (pages.has_room(bytes)) {
      return rows;
    }
    wait_for_sink(held, bytes);
  }
}

// Room for a row behind the last step of each, as many of the first ones as the rate limiter lets
// in; 0 when it let in none. Throws before anything is stored.
uint64_t Appender::lease(Lock& held, std::span<Place* const> places, uint64_t on_device,
                         std::optional<double> timeout_s) {
  const Pages& pages = shard_.pages();
  const uint64_t each = pages.sink_bytes_of_environment(on_device);
  const uint64_t wanted = std::min<uint64_t>(places.size(), pages.most_rows(each));
  for (;;) {
    uint64_t rows = std::min(wanted, shard_.wait_insert(held, timeout_s));
    if (rows == 0) {
      return 0;
    }
    for (Place* at : places.first(rows)) {
      if (!has_room(*at)) {
        shard_.attach_page(held, *at, false);  // without the lock for a while
      }
    }
    rows = std::min(rows, shard_.rate_limiter().room());
    if (rows > 0 && pages.has_room(rows * each)) {
      return rows;
    }
    wait_for_sink(held, rows * each);
  }
}

bool Appender::append(Place& at, Rows columns, uint64_t count, std::span<const float> priorities,
                      uint64_t& done, std::optional<double> timeout_s) {
  shard_.check_process("append");
  Pages& pages = shard_.pages();
  GEAR_CHECK(columns.size() == pages.layout().step_bytes.size());
  GEAR_CHECK(priorities.empty() || priorities.size() == count);
  const bool locked = copies_locked(count);
  auto held = shard_.lock();
  shard_.settle_largest(held, priorities);
  while (done < count) {
    const uint64_t rows = lease(held, at, count - done, timeout_s);
    if (rows == 0) {
      return false;
    }
    if (is_new()) {
      shard_.index().identify(pages.checksum({columns}, 0));
    }
    const Anchor to{at.page, static_cast<uint32_t>(at.row)};
    if (locked) {
      pages.write(to, columns, done, rows);  // may fail on a GPU: counted behind it
      shard_.count_inserted(rows);
    } else {
      shard_.count_inserted(rows);  // before others look for room
      held.unlock();
      pages.write(to, columns, done, rows);
      held = shard_.lock();
    }
    shard_.publish(at, rows, priorities.empty() ? priorities : priorities.subspan(done, rows));
    done += rows;
  }
  return true;
}

bool Appender::append(const EnvironmentSteps& steps, uint64_t& done,
                      std::optional<double> timeout_s) {
  shard_.check_process("append");
  GEAR_CHECK(steps.given.columns.size() == shard_.layout().step_bytes.size());
  GEAR_CHECK(steps.priorities.empty() || steps.priorities.size() == steps.places.size());
  std::optional<uint32_t> checksum;
  if (steps.given.on_device != 0) {
    checksum = checksum_on_device(steps);
  }
  auto held = shard_.lock();
  const auto left = [&] { return steps.places.subspan(done); };
  try {
    shard_.settle_largest(held, steps.priorities);
    require_pages(held, left());
    while (done < steps.places.size()) {
      const uint64_t count = lease(held, left(), steps.given.on_device, timeout_s);
      if (count == 0) {
        leave_unfilled(left());
        return false;
      }
      append(held, steps, done, count, checksum);
      done += count;
    }
  } catch (...) {
    if (!held) {
      held = shard_.lock();
    }
    leave_unfilled(left());
    throw;
  }
  return true;
}

// What the first step of all tells of a buffer: of rows on a GPU the host has to wait for them,
// once in the buffer's life, and without the lock.
std::optional<uint32_t> Appender::checksum_on_device(const EnvironmentSteps& steps) {
  {
    const auto held = shard_.lock();
    if (!is_new() || steps.places.empty()) {
      return std::nullopt;
    }
  }
  return shard_.pages().checksum(steps.given, steps.rows[0]);
}

// Of the places from `first` on, that many, which have room.
void Appender::append(Lock& held, const EnvironmentSteps& steps, uint64_t first, uint64_t count,
                      std::optional<uint32_t> checksum) {
  const auto places = steps.places.subspan(first, count);
  const auto rows = steps.rows.subspan(first, count);
  if (is_new()) {
    shard_.index().identify(checksum ? *checksum : shard_.pages().checksum(steps.given, rows[0]));
  }
  const bool locked = copies_locked(count);
  if (!locked) {
    shard_.count_inserted(count);  // before others look for room
    held.unlock();
  }
  moves_.resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    moves_[i] = move_to(*places[i], rows[i]);
  }
  shard_.pages().write(steps.given, moves_);
  if (locked) {
    shard_.count_inserted(count);
  } else {
    held = shard_.lock();
  }
  shard_.publish(
      places, steps.priorities.empty() ? steps.priorities : steps.priorities.subspan(first, count));
}

// Refuses what cannot end well before a page goes for it. Of those that have an episode each gets
// its next page: in the worst case for the one that it has.
void Appender::require_pages(Lock& held, std::span<Place* const> places) {
  const auto opening = static_cast<uint64_t>(
      std::ranges::count_if(places, [](const Place* at) { return at->episode == kNone; }));
  if (opening == 0) {
    return;
  }
  shard_.wait_for_draw(held);  // behind which episodes may have ended
  const uint64_t open = shard_.num_open_episodes();
  const uint64_t pages = shard_.index().options().num_pages;
  const uint64_t page_steps = shard_.layout().page_steps;
  if (open + opening > pages) {
    throw base::OutOfMemory(base::cat(
        "[buffer] ", opening, " environments open an episode each, and of ", pages, " pages of ",
        page_steps, " steps only ", pages - open, " can be had: ", open, " are the last ",
        "ones of open episodes, of this writer or another; nothing of this call is stored: raise ",
        "capacity to ", (open + opening + 1) * page_steps,
        " or more, lower page_steps or run fewer environments"));
  }
}

// Takes back the episodes that were opened for these places and have no step yet.
void Appender::leave_unfilled(std::span<Place* const> places) {
  std::vector<EnvironmentEnd> unfilled;
  for (Place* at : places) {
    if (at->episode != kNone && at->row == 0 && shard_.index().episode(at->episode).end == 0) {
      unfilled.push_back({at, 0, EpisodeState::kTruncated, -1.0});
    }
  }
  shard_.publish(unfilled, 0);
}

void Appender::end_episodes(std::span<const EnvironmentEnd> ends, const EnvironmentRows& closing) {
  shard_.check_process("end_episode");
  const bool closes = !closing.columns.empty();
  const bool locked = copies_locked(ends.size());
  auto held = shard_.lock();
  while (!ends.empty()) {
    const uint64_t count = closes ? lease_closing(held, ends) : ends.size();
    if (closes) {
      copy_closing(held, locked, ends.first(count), closing);
    }
    shard_.publish(ends.first(count), columns_given(closing.columns));
    ends = ends.subspan(count);
  }
}

// Room for the first one's closing step, and for those of as many behind it as have room at once:
// who needs a page may take one of an episode that has just ended.
uint64_t Appender::lease_closing(Lock& held, std::span<const EnvironmentEnd> ends) {
  if (!has_room(*ends[0].at)) {
    shard_.attach_page(held, *ends[0].at, true);
  }
  const auto end = std::find_if(ends.begin() + 1, ends.end(),
                                [this](const EnvironmentEnd& one) { return !has_room(*one.at); });
  return static_cast<uint64_t>(end - ends.begin());
}

void Appender::copy_closing(Lock& held, bool locked, std::span<const EnvironmentEnd> ends,
                            const EnvironmentRows& closing) {
  if (!locked) {
    held.unlock();
  }
  Pages& pages = shard_.pages();
  const uint64_t each = pages.sink_bytes_of_environment(closing.on_device);
  const uint64_t most = pages.most_rows(each);
  while (!ends.empty()) {
    const uint64_t count = std::min<uint64_t>(ends.size(), most);
    if (locked) {
      wait_for_sink(held, count * each);
    }
    moves_.resize(count);
    for (uint64_t i = 0; i < count; ++i) {
      moves_[i] = move_to(*ends[i].at, ends[i].row);
    }
    pages.write(closing, moves_);
    ends = ends.subspan(count);
  }
  if (!locked) {
    held = shard_.lock();
  }
}

void Appender::end_episode(Place& at, EpisodeState state, double weight, Rows closing) {
  const EnvironmentEnd end{&at, 0, state, weight};
  end_episodes({&end, 1}, {closing});
}

}  // namespace gear::store
