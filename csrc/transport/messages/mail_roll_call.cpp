#include "transport/messages/mail_roll_call.h"

#include <mutex>
#include <utility>

#include "base/threads/interrupt.h"

namespace gear::transport::messages {
namespace {

using Clock = std::chrono::steady_clock;

// A rank that waits looks every kInterruptEvery, a connection takes some looks, and a busy machine
// its time.
constexpr auto kAnAnswer = 8 * base::kInterruptEvery;
constexpr int kMostTurns = 64;  // of the mail, which others may keep busy for ever

}  // namespace

MailRollCall::MailRollCall(std::shared_ptr<Mail> mail, uint64_t channel, uint32_t rank,
                           uint32_t size)
    : mail_(std::move(mail)), rank_(rank), size_(size) {
  const std::lock_guard guard(mail_->mutex());
  channel_ = &mail_->channel(channel);
}

MailRollCall::~MailRollCall() {
  const std::lock_guard guard(mail_->mutex());
  mail_->close(*channel_);
}

void MailRollCall::come() {
  const std::lock_guard guard(mail_->mutex());
  ++channel_->call;
  channel_->in_call = true;
  channel_->awaited.clear();
  channel_->answers.clear();
  asked_.clear();
}

void MailRollCall::go() noexcept {
  const std::lock_guard guard(mail_->mutex());
  channel_->in_call = false;
  channel_->awaited.clear();
  if (channel_->askers.empty()) {
    return;
  }
  try {
    mail_->answer_askers(*channel_);
    let_mail_work();
  } catch (...) {  // the next call of the mail goes on with it
  }
}

void MailRollCall::wait_for(std::span<const uint32_t> awaited) {
  const std::lock_guard guard(mail_->mutex());
  channel_->awaited.assign(awaited.begin(), awaited.end());
  mail_->answer_askers(*channel_);
  let_mail_work();
}

std::vector<uint32_t> MailRollCall::ask() {
  const std::lock_guard guard(mail_->mutex());
  // Those that have answered too: whom they wait for may have changed.
  std::set<uint32_t> now;
  ask_each(channel_->awaited, now);
  for (const auto& [rank, theirs] : channel_->answers) {
    ask_each(theirs, now);
  }
  let_mail_work();
  std::vector<uint32_t> silent;
  const auto answered_by = Clock::now() - kAnAnswer;
  for (const auto& [rank, first] : asked_) {
    if (first <= answered_by && !channel_->answers.contains(rank)) {
      silent.push_back(rank);
    }
  }
  return silent;
}

void MailRollCall::let_mail_work() {
  for (int turn = 0; turn < kMostTurns && mail_->progress(channel_); ++turn) {
  }
}

void MailRollCall::ask_each(std::span<const uint32_t> ranks, std::set<uint32_t>& now) {
  for (const uint32_t rank : ranks) {
    const bool has_answered = channel_->answers.contains(rank);
    if (rank < size_ && rank != rank_ && now.insert(rank).second &&
        (asked_.try_emplace(rank, Clock::now()).second || has_answered)) {
      mail_->ask(rank, *channel_);
    }
  }
}

}  // namespace gear::transport::messages
