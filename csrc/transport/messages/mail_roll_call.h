#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "transport/by_node/roll_call.h"
#include "transport/messages/mail.h"

namespace gear::transport::messages {

/// A roll call by frames of a channel of its own, which no transport has.
class MailRollCall final : public RollCall {
 public:
  MailRollCall(std::shared_ptr<Mail> mail, uint64_t channel, uint32_t rank, uint32_t size);
  ~MailRollCall() override;

  void come() override;
  void go() noexcept override;
  void wait_for(std::span<const uint32_t> awaited) override;
  std::vector<uint32_t> ask() override;

 private:
  void let_mail_work();
  void ask_each(std::span<const uint32_t> ranks, std::set<uint32_t>& now);

  std::shared_ptr<Mail> mail_;
  uint32_t rank_;
  uint32_t size_;
  Channel* channel_;
  std::map<uint32_t, std::chrono::steady_clock::time_point> asked_;
};

}  // namespace gear::transport::messages
