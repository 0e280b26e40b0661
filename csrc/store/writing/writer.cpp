#include "store/writing/writer.h"

#include "base/errors.h"
#include "base/log.h"

namespace gear::store {

Writer::Writer(std::shared_ptr<Shard> shard, std::optional<uint64_t> continue_uid)
    : shard_(std::move(shard)), appender_(*shard_) {
  shard_->check_process("writer");
  if (continue_uid) {
    at_ = appender_.adopt(*continue_uid);
  }
}

Writer::~Writer() {
  if (shard_->forked()) {
    return;
  }
  try {
    end_episode(EpisodeState::kTruncated, -1.0, {});
  } catch (const std::exception& error) {
    base::log(base::Level::kWarning,
              base::cat("[writer] a dropped writer could not end its episode: ", error.what()));
  }
}

void Writer::end_episode(EpisodeState state, double weight, Rows closing) {
  shard_->check_process("end_episode");
  if (at_.episode != kNone) {
    appender_.end_episode(at_, state, weight, closing);
  }
}

std::optional<uint64_t> Writer::episode_uid() const {
  if (at_.episode == kNone) {
    return std::nullopt;
  }
  return at_.uid;
}

uint64_t Writer::episode_steps() const {
  if (at_.episode == kNone) {
    return 0;
  }
  const auto held = shard_->lock();
  return shard_->index().episode(at_.episode).end;
}

}  // namespace gear::store
