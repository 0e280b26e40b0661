#include "store/writer.h"

#include <algorithm>

#include "base/errors.h"
#include "base/log.h"

namespace gear::store {

Writer::Writer(std::shared_ptr<Shard> shard, std::optional<uint64_t> continue_uid)
    : shard_(std::move(shard)), default_priorities_(shard_->layout().page_steps, -1.0F) {
  if (!continue_uid) {
    return;
  }
  const auto lock = shard_->lock();
  const Index& index = shard_->index();
  at_.episode = shard_->index().adopt_episode(*continue_uid);
  at_.uid = *continue_uid;
  at_.page = index.episode(at_.episode).tail;
  at_.row = at_.page == kNone ? 0 : index.page(at_.page).rows;
}

Writer::~Writer() {
  if (at_.episode == kNone) {
    return;
  }
  try {
    end_episode(EpisodeState::kTruncated, -1.0, {});
  } catch (const std::exception& error) {
    base::log(base::Level::kWarning,
              base::cat("[ingest] a dropped writer could not end its episode: ", error.what()));
  }
}

void Writer::write(Rows columns, uint64_t from, uint64_t rows) {
  const PageLayout& layout = shard_->layout();
  for (size_t c = 0; c < columns.size(); ++c) {
    const uint64_t bytes = layout.step_bytes[c];
    const std::byte* source = columns[c] == nullptr ? nullptr : columns[c] + from * bytes;
    shard_->write_rows(layout.offset(at_.page, c, at_.row), source, rows * bytes);
  }
}

bool Writer::append_some(Rows columns, uint64_t count, std::span<const float> priorities,
                         uint64_t& done, std::optional<double> timeout_s) {
  // Taking the lock waits for the stores before it, which miss in a page that was long unused: up
  // to this many bytes, copying under one lock is over sooner than taking it once a page.
  constexpr uint64_t kCopyLocked = 32 << 10;
  GEAR_CHECK(columns.size() == shard_->layout().step_bytes.size());
  GEAR_CHECK(priorities.empty() || priorities.size() == count);
  const bool locked =
      shard_->writes_locked() || count * shard_->schema().step_bytes() <= kCopyLocked;
  auto lock = shard_->lock();
  while (done < count) {
    const uint64_t rows = shard_->place(lock, at_, count - done, timeout_s);
    if (rows == 0) {
      return false;
    }
    try {
      if (!locked) {
        lock.unlock();
      }
      write(columns, done, rows);
      if (!locked) {
        lock = shard_->lock();
      }
    } catch (...) {
      if (!lock) {
        lock = shard_->lock();
      }
      shard_->withdraw(rows);
      throw;
    }
    shard_->publish(at_, priorities.empty()
                             ? std::span<const float>(default_priorities_.data(), rows)
                             : priorities.subspan(done, rows));
    done += rows;
  }
  return true;
}

void Writer::end_episode(EpisodeState state, double weight, Rows closing) {
  if (at_.episode == kNone) {
    return;
  }
  auto lock = shard_->lock();
  uint64_t closing_columns = 0;
  if (!closing.empty()) {
    GEAR_CHECK(closing.size() == shard_->layout().step_bytes.size());
    // A column that is not given is zero: no bytes of what lay here before.
    shard_->place_closing(lock, at_);
    write(closing, 0, 1);
    for (size_t c = 0; c < closing.size(); ++c) {
      if (closing[c] != nullptr) {
        closing_columns |= uint64_t{1} << c;
      }
    }
  }
  shard_->end_episode(at_.episode, state, weight, closing_columns);
  at_ = {};
  lock.unlock();
  shard_->notify_progress();
}

std::optional<uint64_t> Writer::episode_uid() const {
  if (at_.episode == kNone) {
    return std::nullopt;
  }
  return at_.uid;
}

}  // namespace gear::store
