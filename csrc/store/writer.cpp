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
  Index& index = shard_->index();
  episode_ = index.adopt_episode(*continue_uid);
  uid_ = *continue_uid;
  page_ = index.episode(episode_).tail;
  row_ = page_ == kNone ? 0 : index.page(page_).rows;
}

Writer::~Writer() {
  if (episode_ == kNone) {
    return;
  }
  try {
    end_episode(EpisodeState::kTruncated, -1.0, {});
  } catch (const std::exception& error) {
    base::log(base::Level::kWarning, base::cat("[ingest] a writer was dropped and its episode ",
                                               "could not be ended: ", error.what()));
  }
}

bool Writer::reserve(uint64_t steps, std::optional<double> timeout_s) {
  auto lock = shard_->lock();
  return shard_->reserve_insert(lock, steps, timeout_s);
}

void Writer::need_room(std::unique_lock<std::mutex>& lock) {
  Index& index = shard_->index();
  if (episode_ == kNone) {
    episode_ = index.open_episode();
    uid_ = index.episode(episode_).uid;
    page_ = kNone;
  }
  if (page_ != kNone && row_ < shard_->layout().page_steps) {
    return;
  }
  page_ = shard_->attach_page(lock, episode_);
  row_ = 0;
}

void Writer::append(Rows columns, uint64_t count, std::span<const float> priorities) {
  // Taking the lock waits for the stores before it, which miss in a page that was long unused: up
  // to this many bytes, copying under one lock is over sooner than taking it once a page.
  constexpr uint64_t kCopyLocked = 32 << 10;
  const PageLayout& layout = shard_->layout();
  GEAR_CHECK(columns.size() == layout.step_bytes.size());
  GEAR_CHECK(priorities.empty() || priorities.size() == count);
  const bool locked =
      shard_->writes_locked() || count * shard_->schema().step_bytes() <= kCopyLocked;
  auto lock = shard_->lock();
  for (uint64_t done = 0; done < count;) {
    need_room(lock);
    const uint64_t rows = std::min(count - done, layout.page_steps - row_);
    if (!locked) {
      lock.unlock();
    }
    for (size_t c = 0; c < columns.size(); ++c) {
      const uint64_t bytes = layout.step_bytes[c];
      shard_->write_rows(layout.offset(page_, c, row_), columns[c] + done * bytes, rows * bytes);
    }
    if (!locked) {
      lock = shard_->lock();
    }
    shard_->append(episode_, priorities.empty()
                                 ? std::span<const float>(default_priorities_.data(), rows)
                                 : priorities.subspan(done, rows));
    row_ += rows;
    done += rows;
  }
  lock.unlock();
  shard_->notify_progress();
}

void Writer::end_episode(EpisodeState state, double weight, Rows closing) {
  if (episode_ == kNone) {
    return;
  }
  const PageLayout& layout = shard_->layout();
  auto lock = shard_->lock();
  uint64_t closing_columns = 0;
  if (!closing.empty()) {
    GEAR_CHECK(closing.size() == layout.step_bytes.size());
    need_room(lock);
    for (size_t c = 0; c < closing.size(); ++c) {
      // A column that is not given is zero: no bytes of what lay here before.
      shard_->write_rows(layout.offset(page_, c, row_), closing[c], layout.step_bytes[c]);
      if (closing[c] != nullptr) {
        closing_columns |= uint64_t{1} << c;
      }
    }
  }
  shard_->end_episode(episode_, state, weight, closing_columns);
  episode_ = kNone;
  page_ = kNone;
  lock.unlock();
  shard_->notify_progress();
}

std::optional<uint64_t> Writer::episode_uid() const {
  if (episode_ == kNone) {
    return std::nullopt;
  }
  return uid_;
}

}  // namespace gear::store
