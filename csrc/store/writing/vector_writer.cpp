#include "store/writing/vector_writer.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/errors.h"
#include "base/log.h"

namespace gear::store {

VectorWriter::VectorWriter(std::shared_ptr<Shard> shard, uint64_t num_environments, bool next_step,
                           std::span<const std::optional<uint64_t>> continue_uids,
                           std::span<const EpisodeState> ended)
    : shard_(std::move(shard)), appender_(*shard_), next_step_(next_step) {
  shard_->check_process("writer");
  const IndexOptions& index = shard_->index().options();
  if (num_environments >= index.num_pages) {
    throw base::InvalidArgument(
        base::cat("[writer] ", num_environments,
                  " environments: each open episode keeps a page to itself, and ",
                  "this buffer has ", index.num_pages, " of ", index.page_steps,
                  " steps: raise capacity to ", (num_environments + 1) * index.page_steps,
                  " or more, of which little would then be ", "stored, or lower page_steps"));
  }
  GEAR_CHECK(continue_uids.empty() || continue_uids.size() == num_environments);
  GEAR_CHECK(ended.empty() || (next_step && ended.size() == continue_uids.size()));
  at_ = appender_.adopt(continue_uids);
  at_.resize(num_environments);
  ended_.assign(ended.begin(), ended.end());
  ended_.resize(num_environments, EpisodeState::kOpen);
}

VectorWriter::~VectorWriter() {
  if (shard_->forked()) {
    return;
  }
  try {
    end_episodes({}, false);
  } catch (const std::exception& error) {
    base::log(base::Level::kWarning,
              base::cat("[writer] a dropped writer could not end its episodes: ", error.what()));
  }
}

EpisodeState VectorWriter::state_of(const Call& call, uint64_t environment) {
  if (call.terminated != nullptr && call.terminated[environment]) {
    return EpisodeState::kTerminated;
  }
  const bool truncated = call.truncated != nullptr && call.truncated[environment];
  return truncated ? EpisodeState::kTruncated : EpisodeState::kOpen;
}

void VectorWriter::list_ending(const Call& call, std::vector<uint64_t>& out) const {
  out.clear();
  for (uint64_t i = 0; i < at_.size(); ++i) {
    const EpisodeState state = next_step_ ? ended_[i] : state_of(call, i);
    if (takes_part(call, i) && state != EpisodeState::kOpen) {
      out.push_back(i);
    }
  }
}

void VectorWriter::begin(const Call& call) {
  call_ = call;
  done_ = 0;
  places_.clear();
  rows_.clear();
  priorities_.clear();
  due_.clear();
  for (uint64_t i = 0; i < at_.size(); ++i) {
    if (!takes_part(call, i)) {
      continue;
    }
    if (ended_[i] != EpisodeState::kOpen) {
      due_.emplace_back(i, ended_[i]);
      continue;
    }
    places_.push_back(&at_[i]);
    rows_.push_back(i);
    if (!call.priorities.empty()) {
      priorities_.push_back(call.priorities[i]);
    }
  }
}

bool VectorWriter::write(std::optional<double> timeout_s) {
  const uint64_t before = done_;
  bool all = false;
  try {
    all = appender_.append({places_, rows_, call_.columns, priorities_}, done_, timeout_s);
  } catch (...) {
    end_stored(before);
    throw;
  }
  end_stored(before);
  for (const auto& [environment, state] : std::exchange(due_, {})) {
    list_end(environment, state);
  }
  end_listed(call_.closing);
  return all;
}

// What is stored keeps its flags, however the call comes to its end.
void VectorWriter::end_stored(uint64_t from) {
  ends_.clear();
  for (uint64_t k = from; k < done_; ++k) {
    const EpisodeState state = state_of(call_, rows_[k]);
    if (next_step_) {
      ended_[rows_[k]] = state;
    } else if (state != EpisodeState::kOpen) {
      list_end(rows_[k], state);
    }
  }
  end_listed(next_step_ ? Pages::EnvironmentRows() : call_.closing);
}

void VectorWriter::end_episodes(const Call& call, bool terminated) {
  ends_.clear();
  for (uint64_t i = 0; i < at_.size(); ++i) {
    if (takes_part(call, i)) {
      const EpisodeState asked = terminated ? EpisodeState::kTerminated : EpisodeState::kTruncated;
      list_end(i, ended_[i] == EpisodeState::kOpen ? asked : ended_[i]);
    }
  }
  end_listed(call.closing);
}

void VectorWriter::list_end(uint64_t environment, EpisodeState state) {
  if (at_[environment].episode != kNone) {
    ends_.push_back({&at_[environment], environment, state, -1.0});
  }
}

void VectorWriter::end_listed(const Pages::EnvironmentRows& closing) {
  if (ends_.empty()) {
    return;
  }
  std::optional<std::string> lacking;
  uint64_t without = 0;
  try {
    appender_.end_episodes(ends_, closing);
  } catch (const base::OutOfMemory& error) {
    lacking = error.what();
    without = end_without_closing();
  }
  for (const Appender::EnvironmentEnd& end : ends_) {
    ended_[end.row] = EpisodeState::kOpen;
  }
  ends_.clear();
  if (lacking) {
    throw base::OutOfMemory(base::cat(*lacking, "; the steps of this call are stored, and ",
                                      without, " episodes have ended without a closing step"));
  }
}

// Those that are listed and open still: nobody says again that they ended.
uint64_t VectorWriter::end_without_closing() {
  std::vector<Appender::EnvironmentEnd> open;
  std::ranges::copy_if(ends_, std::back_inserter(open),
                       [](const auto& end) { return end.at->episode != kNone; });
  appender_.end_episodes(open, {});
  return open.size();
}

std::optional<uint64_t> VectorWriter::episode_uid(uint64_t environment) const {
  const Shard::Place& at = at_[environment];
  return at.episode == kNone ? std::nullopt : std::optional(at.uid);
}

}  // namespace gear::store
