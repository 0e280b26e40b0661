#include <algorithm>
#include <atomic>

#include "base/cuda/following.cuh"
#include "base/errors.h"
#include "group/cuda/device_meeting.cuh"

namespace gear::group {
namespace {

__global__ void __launch_bounds__(meeting::kWarp)
    meet_ranks(const __grid_constant__ Meeting meeting) {
  base::follow();
  come_to(meeting);
}

}  // namespace

DeviceMeeting::DeviceMeeting(uint32_t rank, std::span<Mailbox* const> mailboxes, double timeout_s,
                             int device)
    : rank_(rank),
      size_(static_cast<uint32_t>(mailboxes.size())),
      timeout_ns_(static_cast<uint64_t>(std::min(timeout_s, 1e9) * 1e9)),
      words_(1, device) {
  GEAR_CHECK(size_ <= kMostGpuRanks && rank_ < size_);
  std::ranges::copy(mailboxes, mailboxes_);
  words_[0] = {};
}

Meeting DeviceMeeting::next(const SaidAt& said) {
  Meeting meeting{};
  std::ranges::copy(mailboxes_, meeting.mailboxes);
  meeting.said = said;
  meeting.met = &words_[0].met;
  meeting.missing = &words_[0].missing;
  meeting.give_up = &words_[0].give_up;
  meeting.number = ++meetings_;
  meeting.timeout_ns = timeout_ns_;
  meeting.rank = rank_;
  meeting.size = size_;
  return meeting;
}

DeviceMeeting::State DeviceMeeting::state() const {
  Words& words = words_[0];
  const uint64_t met = std::atomic_ref(words.met).load(std::memory_order_acquire);
  return {met, std::atomic_ref(words.missing).load(std::memory_order_acquire)};
}

void DeviceMeeting::give_up() {
  std::atomic_ref(words_[0].give_up).store(1, std::memory_order_release);
}

void meet(const Meeting& meeting, cudaStream_t stream) {
  base::launch_following<meet_ranks>(1, meeting::kWarp, stream, meeting);
}

Meeting meet_first(const Meeting& meeting, uint64_t blocks, cudaStream_t stream) {
  if (meeting.number == 0 || blocks <= kMostMeetingBlocks) {
    return meeting;
  }
  meet(meeting, stream);
  return {};
}

}  // namespace gear::group
