#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "transport/mpi/messages.h"
#include "transport/mpi/runtime.h"

namespace gear::transport::mpi {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kBusyTurns = 16;      // a few microseconds
constexpr uint32_t kYieldTurns = 5'000;  // some milliseconds
constexpr std::chrono::microseconds kShortSleep{50};
constexpr std::chrono::milliseconds kCancelFor{250};
constexpr std::chrono::seconds kWordsWithin{1};  // they have been sent at once

// Of `peer`, or MPI_ANY_SOURCE; empty: none have come.
std::string words_from(int peer, MPI_Comm communicator) {
  const Turn turn;
  int there = 0;
  MPI_Status status;
  check(MPI_Iprobe(peer, kWordsTag, communicator, &there, &status), "MPI_Iprobe");
  if (there == 0) {
    return {};
  }
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  std::string words(static_cast<size_t>(bytes), '\0');
  check(MPI_Recv(words.data(), bytes, MPI_BYTE, status.MPI_SOURCE, kWordsTag, communicator,
                 MPI_STATUS_IGNORE),
        "MPI_Recv");
  return words;
}

}  // namespace

std::string words_of_any(MPI_Comm communicator) { return words_from(MPI_ANY_SOURCE, communicator); }

void Backoff::pause() noexcept {
  if (turn_ >= kYieldTurns) {
    std::this_thread::sleep_for(kShortSleep);
  } else if (++turn_ >= kBusyTurns) {
    ::sched_yield();
  }
}

void Messages::begin(Call call) {
  call_ = call;
  num_open_ = 0;
  posts_.clear();
  requests_.clear();
}

void Messages::receive(uint32_t source, Bytes bytes) {
  for (uint64_t begin = 0; begin < bytes.size(); begin += message_bytes_) {
    const Bytes part = bytes.subspan(begin, std::min(message_bytes_, bytes.size() - begin));
    MPI_Request request = MPI_REQUEST_NULL;
    const Turn turn;
    check(MPI_Irecv(part.data(), static_cast<int>(part.size()), MPI_BYTE, static_cast<int>(source),
                    MPI_ANY_TAG, communicator_, &request),
          "MPI_Irecv");
    posts_.push_back({source, part.size(), true, false});
    requests_.push_back(request);
    ++num_open_;
  }
}

void Messages::send(uint32_t target, ConstBytes bytes) {
  for (uint64_t begin = 0; begin < bytes.size(); begin += message_bytes_) {
    const ConstBytes part = bytes.subspan(begin, std::min(message_bytes_, bytes.size() - begin));
    MPI_Request request = MPI_REQUEST_NULL;
    const Turn turn;
    check(MPI_Isend(part.data(), static_cast<int>(part.size()), MPI_BYTE, static_cast<int>(target),
                    static_cast<int>(call_), communicator_, &request),
          "MPI_Isend");
    posts_.push_back({target, part.size(), false, false});
    requests_.push_back(request);
    ++num_open_;
  }
}

void Messages::wait(double timeout_s) {
  ended_.resize(requests_.size());
  statuses_.resize(requests_.size());
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  auto next_look = Clock::now() + base::kInterruptEvery;
  Backoff backoff;
  try {
    while (num_open_ > 0) {
      if (test() == 0) {
        const auto now = Clock::now();
        if (now >= deadline) {
          fail_late(timeout_s);
        }
        if (now >= next_look) {
          failure_.check();
          base::check_interrupt();
          next_look = now + base::kInterruptEvery;
        }
        backoff.pause();
      }
    }
  } catch (...) {
    cancel();
    throw;
  }
}

int Messages::test() {
  int count = 0;
  int code = MPI_SUCCESS;
  {
    const Turn turn;
    code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, ended_.data(),
                        statuses_.data());
  }
  if (code != MPI_ERR_IN_STATUS) {
    check(code, "MPI_Testsome");
  }
  count = std::max(count, 0);  // MPI_UNDEFINED: none was open
  for (int i = 0; i < count; ++i) {
    const auto index = static_cast<size_t>(i);
    posts_[static_cast<size_t>(ended_[index])].done = true;
    --num_open_;
  }
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const Post& post = posts_[static_cast<size_t>(ended_[i])];
    const int error = code == MPI_ERR_IN_STATUS ? statuses_[i].MPI_ERROR : MPI_SUCCESS;
    if (post.receives) {
      check_received(post, statuses_[i]);
    }
    check(error, post.receives ? "receiving by MPI" : "sending by MPI");
  }
  return count;
}

void Messages::check_received(const Post& post, const MPI_Status& status) const {
  if (status.MPI_TAG == static_cast<int>(Call::kGaveUp)) {
    throw base::TransportError(words_of(post.peer));
  }
  if (status.MPI_TAG != static_cast<int>(call_)) {
    throw base::TransportError(other_call_text(
        post.peer, call_name(static_cast<Call>(status.MPI_TAG)), rank_, call_name(call_)));
  }
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  if (static_cast<uint64_t>(bytes) != post.bytes) {
    throw base::TransportError(other_size_text(post.peer, static_cast<uint64_t>(bytes), rank_,
                                               post.bytes, call_name(call_)));
  }
}

std::string Messages::words_of(uint32_t peer) const {
  const auto deadline = Clock::now() + kWordsWithin;
  while (Clock::now() < deadline) {
    failure_.check();  // another thread may have taken them
    if (std::string words = words_from(static_cast<int>(peer), communicator_); !words.empty()) {
      return words;
    }
    std::this_thread::sleep_for(kShortSleep);
  }
  return base::cat("[transport] rank ", peer, " has given up while others wait for it in ",
                   call_name(call_), ": its own output says why");
}

void Messages::fail_late(double timeout_s) {
  std::vector<uint32_t> silent;
  std::vector<uint32_t> deaf;
  for (const Post& post : posts_) {
    if (!post.done) {
      (post.receives ? silent : deaf).push_back(post.peer);
    }
  }
  std::vector<uint32_t>& missing = silent.empty() ? deaf : silent;
  std::ranges::sort(missing);
  missing.erase(std::ranges::unique(missing).begin(), missing.end());
  throw base::TransportError(late_text(missing, call_name(call_), timeout_s));
}

// Receives first of all: nothing may be written to the caller's memory later.
void Messages::cancel() noexcept {
  {
    const Turn turn;
    for (size_t i = 0; i < posts_.size(); ++i) {
      if (!posts_[i].done && posts_[i].receives) {
        MPI_Cancel(&requests_[i]);
      }
    }
  }
  const auto deadline = Clock::now() + kCancelFor;
  int all_ended = 0;
  while (all_ended == 0 && Clock::now() < deadline) {
    {
      const Turn turn;
      if (MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all_ended,
                      MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
        return;
      }
    }
    std::this_thread::sleep_for(kShortSleep);
  }
}

}  // namespace gear::transport::mpi
