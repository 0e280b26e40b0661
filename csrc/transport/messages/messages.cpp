#include "transport/messages/messages.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "transport/collective.h"
#include "transport/messages/mail_roll_call.h"

namespace gear::transport::messages {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr uint32_t kDirect = UINT32_MAX;  // the round of an exchange's own messages
// More ranks disseminate what an exchange is to bring, and do not tell each of the others apart.
constexpr uint32_t kFewRanks = 64;

constexpr uint32_t kBusyTurns = 16;
constexpr double kLongestSleep = 0.1;
// After them this rank goes on; what has not left does when it looks, or ends.
constexpr std::chrono::milliseconds kFirstWords{250};
constexpr double kFirstNap = 50e-6;  // where no file tells of what comes

constexpr uint64_t kRollCalls = UINT64_MAX;  // channels that no duplicate has
constexpr uint64_t kRoll = UINT64_MAX - 1;
constexpr std::chrono::milliseconds kRollPause{1};

// Before the time-out, s: what an answer takes on a machine that has far more to do than it can.
constexpr double kRollCall = 5;
constexpr double kRollCallPart = 0.5;
constexpr std::chrono::milliseconds kAnswer{1000};  // of a rank whose process has not ended
// Words with which one ends, or what it sent before, may still come from another machine.
constexpr std::chrono::milliseconds kAnswerFromFar = Mail::kLastWords;
constexpr std::chrono::milliseconds kLookAtProcesses{500};

// Of the n-th duplicate: the same on all ranks, and of no other channel.
uint64_t channel_of(uint64_t original, uint64_t n) {
  uint64_t mixed = original * 0x9e3779b97f4a7c15 + n + 1;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

std::chrono::nanoseconds in_ns(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

}  // namespace

Messages::Messages(std::shared_ptr<Mail> mail, uint32_t rank, uint32_t size, double timeout_s,
                   std::shared_ptr<Failure> failure)
    : Messages(std::move(mail), 1, rank, size, timeout_s, or_own(std::move(failure))) {}

Messages::Messages(std::shared_ptr<Mail> mail, uint64_t channel, uint32_t rank, uint32_t size,
                   double timeout_s, std::shared_ptr<Failure> failure)
    : mail_(std::move(mail)),
      failure_(std::move(failure)),
      rank_(rank),
      size_(size),
      timeout_s_(timeout_s) {
  check_membership(rank, size, timeout_s);
  ranks_.resize(size);
  std::iota(ranks_.begin(), ranks_.end(), 0U);
  {
    const std::lock_guard guard(mail_->mutex());
    channel_ = &mail_->open(channel);
  }
  hearing_.reset(new Failure::Hearing(failure_, *this));  // its base is private
}

Messages::~Messages() {
  hearing_.reset();
  const std::lock_guard guard(mail_->mutex());
  mail_->close(*channel_);
}

void Messages::set_timeout_s(double timeout_s) {
  check_timeout(timeout_s);
  timeout_s_ = timeout_s;
}

void Messages::look() {
  std::string words;
  {
    const std::lock_guard guard(mail_->mutex());
    mail_->progress(nullptr);  // another thread may be waiting
    words = mail_->words();
  }
  if (!words.empty()) {
    failure_->tell(words);
  }
  failure_->check();
}

void Messages::finish() noexcept {
  const std::lock_guard guard(mail_->mutex());
  mail_->finish_telling();
}

// Few ranks hear of it directly, many by way of each other.
void Messages::hear(const std::string& text) noexcept {
  try {
    const std::lock_guard guard(mail_->mutex());
    if (!mail_->first_telling()) {
      return;
    }
    if (size_ <= kFewRanks) {
      for (uint32_t i = 1; i < size_; ++i) {
        mail_->tell((rank_ + i) % size_, text);
      }
    } else {
      for (uint32_t distance = 1; distance < size_; distance *= 2) {
        mail_->tell((rank_ + distance) % size_, text);
        mail_->tell((rank_ + size_ - distance) % size_, text);
      }
    }
    mail_->linger(kFirstWords);
  } catch (...) {  // the others miss this rank then
  }
}

template <class Body>
void Messages::run(FrameKind kind, const Body& body) {
  failure_->check();
  try {
    begin(kind);
    body();
    end();
  } catch (const base::TransportError& error) {
    failure_->tell(error.what());
    throw;
  } catch (...) {
    failure_->tell_interrupted(rank_, frame_name(kind));
    throw;
  }
}

void Messages::begin(FrameKind kind) {
  deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(timeout_s_));
  outgoing_.clear();
  const std::lock_guard guard(mail_->mutex());
  ++channel_->call;
  channel_->former = std::exchange(channel_->kind, kind);
  channel_->in_call = true;
  channel_->answers.clear();
  channel_->awaited.clear();
  for (const auto& [key, message] : channel_->messages) {
    if (key.call == channel_->call && message.kind != kind) {
      throw base::TransportError(
          other_call_text(key.source, frame_name(message.kind), rank_, frame_name(kind)));
    }
  }
}

// All that goes out has gone, and nothing more has come.
void Messages::end() {
  wait([&] { return true; }, [] { return std::vector<uint32_t>(); });
  const std::lock_guard guard(mail_->mutex());
  if (!channel_->askers.empty()) {
    mail_->answer_askers(*channel_);
    mail_->progress(channel_);
  }
  channel_->in_call = false;
  channel_->awaited.clear();
  const auto& left = channel_->messages;
  if (!left.empty() && left.begin()->first.call == channel_->call) {
    throw base::TransportError(other_size_text(left.begin()->first.source,
                                               left.begin()->second.total, rank_, 0,
                                               frame_name(channel_->kind)));
  }
}

void Messages::allgather(ConstBytes mine, Bytes all) {
  check_allgather(size_, mine, all);
  run(FrameKind::kAllgather, [&] { disseminate(everyone(), mine, all); });
}

void Messages::allgather_among(std::span<const uint32_t> ranks, ConstBytes mine, Bytes all) {
  const auto own = std::ranges::lower_bound(ranks, rank_);
  const bool takes_part = own != ranks.end() && *own == rank_;
  if (takes_part) {
    check_allgather(static_cast<uint32_t>(ranks.size()), mine, all);
  }
  run(FrameKind::kAllgather, [&] {
    if (takes_part) {
      disseminate({ranks, static_cast<uint32_t>(own - ranks.begin())}, mine, all);
    }
  });
}

// room: block j is of rank - j. Those below d are there after the rounds of distances below d.
void Messages::disseminate(const Circle& circle, ConstBytes mine, Bytes all) {
  const uint64_t bytes = mine.size();
  const uint32_t size = circle.size();
  if (bytes == 0) {
    return;
  }
  const memory::Room room = mail_->rooms().take(size * bytes);
  std::memcpy(room.get(), mine.data(), bytes);
  uint32_t round = 0;
  for (uint32_t distance = 1; distance < size; distance *= 2, ++round) {
    const uint64_t count = std::min(distance, size - distance) * bytes;
    send(circle.ahead(distance), round, {room.get(), static_cast<size_t>(count)});
    const Message message = receive(circle, round);
    if (message.total != count) {
      throw base::TransportError(other_size_text(circle.behind(distance),
                                                 message.total / (count / bytes), rank_, bytes,
                                                 frame_name(channel_->kind)));
    }
    std::memcpy(room.get() + distance * bytes, message.room.get(), count);
  }
  for (uint32_t block = 0; block < size; ++block) {
    std::memcpy(all.data() + ((circle.place + size - block) % size) * bytes,
                room.get() + block * bytes, bytes);
  }
  wait([&] { return true; }, [] { return std::vector<uint32_t>(); });  // room is sent
}

std::span<const ConstBytes> Messages::exchange(std::span<const ConstBytes> to,
                                               std::span<const uint64_t> sizes) {
  check_exchange(rank_, size_, to, sizes);
  run(FrameKind::kExchange, [&] {
    std::vector<uint64_t> found;
    const bool each_sends = sizes.empty() && size_ <= kFewRanks;
    if (sizes.empty() && !each_sends) {
      found = exchange_words(told_sizes(to));
    }
    pass(to, found.empty() ? sizes : found);
  });
  return spans_;
}

std::span<const ConstBytes> Messages::exchange_sparse(std::span<const ConstBytes> to,
                                                      std::span<const uint8_t> from) {
  check_sparse(rank_, size_, to, from);
  run(FrameKind::kExchange, [&] { pass(to, some_sizes(rank_, to, from)); });
  return spans_;
}

// An exchange's own messages; without `sizes` each sends each one.
void Messages::pass(std::span<const ConstBytes> to, std::span<const uint64_t> sizes) {
  const bool each_sends = sizes.empty();
  received_.clear();
  received_.resize(size_);
  spans_.assign(size_, {});
  std::vector<uint32_t> awaited;
  for (uint32_t i = 1; i < size_; ++i) {
    const uint32_t target = (rank_ + i) % size_;
    if (each_sends || !to[target].empty()) {
      send(target, kDirect, to[target]);
    }
    const uint32_t source = (rank_ + size_ - i) % size_;
    if (each_sends || sizes[source] != 0) {
      awaited.push_back(source);
    }
  }
  wait(
      [&] {
        std::erase_if(awaited, [&](uint32_t source) {
          const auto place = channel_->messages.find({channel_->call, kDirect, source});
          if (place == channel_->messages.end() || !place->second.whole()) {
            return false;
          }
          received_[source] = std::move(place->second);
          channel_->messages.erase(place);
          return true;
        });
        return awaited.empty();
      },
      [&] { return awaited; });
  for (uint32_t r = 0; r < size_; ++r) {
    if (r == rank_) {
      spans_[r] = to[r];
      continue;
    }
    spans_[r] = received_[r].bytes();
    if (!is_expected(sizes, r, spans_[r].size())) {
      throw base::TransportError(
          other_size_text(r, spans_[r].size(), rank_, sizes[r], frame_name(FrameKind::kExchange)));
    }
  }
}

std::vector<uint64_t> Messages::told_sizes(std::span<const ConstBytes> to) {
  std::vector<uint64_t> sizes;
  for (const ConstBytes entry : to) {
    sizes.push_back(entry.size());
  }
  return sizes;
}

// words[r] goes to rank r; returns what comes, by rank. Bruck's: block j is first for rank + j, and
// travels 2^k ranks in each round k in which bit k of j is set; then it is from rank - j.
std::vector<uint64_t> Messages::exchange_words(std::vector<uint64_t> words) {
  std::vector<uint64_t> blocks(size_);
  for (uint32_t j = 0; j < size_; ++j) {
    blocks[j] = words[(rank_ + j) % size_];
  }
  std::vector<std::vector<uint64_t>> sent;
  uint32_t round = 0;
  for (uint32_t distance = 1; distance < size_; distance *= 2, ++round) {
    std::vector<uint64_t>& going = sent.emplace_back();
    for (uint32_t j = 0; j < size_; ++j) {
      if ((j & distance) != 0) {
        going.push_back(blocks[j]);
      }
    }
    send(everyone().ahead(distance), round, std::as_bytes(std::span(going)));
    const Message message = receive(everyone(), round);
    if (message.total != going.size() * sizeof(uint64_t)) {
      throw base::TransportError(other_size_text(everyone().behind(distance), message.total, rank_,
                                                 going.size() * sizeof(uint64_t),
                                                 frame_name(channel_->kind)));
    }
    const std::byte* next = message.room.get();
    for (uint32_t j = 0; j < size_; ++j) {
      if ((j & distance) != 0) {
        std::memcpy(&blocks[j], next, sizeof(uint64_t));
        next += sizeof(uint64_t);
      }
    }
  }
  wait([&] { return true; }, [] { return std::vector<uint32_t>(); });  // what is sent is here
  for (uint32_t j = 0; j < size_; ++j) {
    words[(rank_ + size_ - j) % size_] = blocks[j];
  }
  return words;
}

// Each sends each an empty message, which waits for those that come later.
std::vector<uint32_t> Messages::present(double wait_s) {
  const auto until = Clock::now() + in_ns(wait_s);
  std::vector<uint32_t> others(ranks_);
  std::erase(others, rank_);
  std::vector<uint32_t> untold(others);
  std::unique_lock guard(mail_->mutex());
  Channel& roll = mail_->channel(channel_of(channel_->id, kRoll));
  ++roll.call;
  roll.in_call = true;
  const auto has_come = [&](uint32_t r) { return roll.messages.contains({roll.call, kDirect, r}); };
  for (;;) {
    std::erase_if(untold, [&](uint32_t r) {
      try {
        return mail_->send(r, roll, kDirect, {}, 0) == 0;
      } catch (const base::TransportError&) {  // it cannot be reached any more
        return true;
      }
    });
    bool moved = false;
    try {
      moved = mail_->progress(&roll);
    } catch (const base::TransportError&) {  // what was sent to such a one did not leave
    }
    const bool all_have_met = untold.empty() && std::ranges::all_of(others, [&](uint32_t r) {
                                return has_come(r) && roll.has_sent(r);
                              });
    if (all_have_met || Clock::now() >= until) {
      break;
    }
    guard.unlock();
    base::check_interrupt();
    if (!moved) {
      std::this_thread::sleep_for(kRollPause);
    }
    guard.lock();
  }
  std::vector<uint32_t> found;
  std::ranges::copy_if(ranks_, std::back_inserter(found),
                       [&](uint32_t r) { return r == rank_ || has_come(r); });
  std::erase_if(roll.messages, [&](const auto& one) { return one.first.call <= roll.call; });
  return found;
}

std::unique_ptr<Transport> Messages::duplicate() {
  const std::byte here{};
  std::vector<std::byte> all(size_);
  run(FrameKind::kDuplicate, [&] { disseminate(everyone(), {&here, 1}, all); });
  return std::unique_ptr<Transport>(new Messages(mail_, channel_of(channel_->id, num_duplicates_++),
                                                 rank_, size_, timeout_s_, failure_));
}

std::vector<uint32_t> Messages::awaited() {
  const std::lock_guard guard(mail_->mutex());
  return channel_->awaited;
}

std::unique_ptr<RollCall> Messages::roll_call() {
  return std::make_unique<MailRollCall>(mail_, channel_of(channel_->id, kRollCalls), rank_, size_);
}

void Messages::send(uint32_t rank, uint32_t round, ConstBytes bytes) {
  outgoing_.push_back({rank, round, bytes});
  const std::lock_guard guard(mail_->mutex());
  push();
}

Message Messages::receive(const Circle& circle, uint32_t round) {
  const uint32_t source = circle.behind(uint32_t{1} << round);
  std::optional<Message> found;
  wait(
      [&] {
        const auto place = channel_->messages.find({channel_->call, round, source});
        if (place != channel_->messages.end() && place->second.whole()) {
          found = std::move(place->second);
          channel_->messages.erase(place);
        }
        return found.has_value();
      },
      [&] {
        std::vector<uint32_t> awaited;
        if (!found) {
          awaited.push_back(source);
          // Those of the later rounds too, so that all that are missing are found.
          for (uint32_t d = 1; circle.size() <= kFewRanks && d < circle.size(); d *= 2) {
            const uint32_t later = circle.behind(d);
            if (d >= (uint64_t{1} << round) && later != source) {
              awaited.push_back(later);
            }
          }
        }
        return awaited;
      });
  return std::move(*found);
}

bool Messages::push() {
  bool moved = false;
  for (Outgoing& one : outgoing_) {
    while (!one.all) {
      const int64_t went = mail_->send(one.rank, *channel_, one.round, one.bytes, one.begun);
      if (went < 0) {
        break;
      }
      one.begun += static_cast<uint64_t>(went);
      one.all = one.begun == one.bytes.size();
      moved = true;
    }
  }
  return moved;
}

bool Messages::all_left() const {
  return std::ranges::all_of(
      outgoing_, [&](const Outgoing& one) { return one.all && channel_->has_sent(one.rank); });
}

template <class HasEnded, class Awaited>
void Messages::wait(const HasEnded& has_ended, const Awaited& awaited) {
  // Rounds go on while what they send leaves; the last wait is for that alone.
  const bool for_sends = awaited().empty();
  auto roll_call = deadline_ - std::chrono::duration_cast<Clock::duration>(
                                   Seconds(std::min(kRollCall, timeout_s_ * kRollCallPart)));
  auto next_look = Clock::now() + base::kInterruptEvery;
  auto next_look_at_processes = Clock::now() + kLookAtProcesses;
  std::map<uint32_t, Clock::time_point> ended;  // rank -> when it is named if it is missed
  std::set<uint32_t> asked;
  const Patience patience = mail_->patience();
  uint32_t turn = 0;
  double nap = kFirstNap;
  const auto call = [&] { return frame_name(channel_->kind); };
  const auto absent = [&] {
    std::vector<uint32_t> ranks = awaited();
    if (!ranks.empty()) {
      return ranks;
    }
    for (const Outgoing& one : outgoing_) {
      if (!(one.all && channel_->has_sent(one.rank)) && !std::ranges::count(ranks, one.rank)) {
        ranks.push_back(one.rank);
      }
    }
    return ranks;
  };
  for (;;) {
    const auto now = Clock::now();
    bool moved = false;
    bool rings = false;
    {
      const std::lock_guard guard(mail_->mutex());
      channel_->news = false;
      if (turn == 0) {
        mail_->watch(awaited());
      }
      moved = push();
      moved = mail_->progress(channel_) || moved;
      if (!channel_->fault.empty()) {
        throw base::TransportError(channel_->fault);
      }
      if (has_ended() && (!for_sends || all_left())) {
        return;
      }
      if (!moved && !mail_->words().empty()) {
        throw base::TransportError(mail_->words());
      }
      if (now >= next_look || turn == 0) {
        channel_->awaited = absent();
        mail_->answer_askers(*channel_);
        for (const uint32_t r : channel_->awaited) {
          if (!moved && mail_->has_left(r)) {
            throw base::TransportError(left_text(base::cat("rank ", r), call()));
          }
        }
      }
      if (now >= next_look_at_processes) {
        next_look_at_processes = now + kLookAtProcesses;
        for (const uint32_t r : ranks_) {
          if (mail_->has_ended(r)) {
            ended.try_emplace(r, now + (mail_->pid_of(r) ? kAnswer : kAnswerFromFar));
          }
        }
        if (!ended.empty()) {
          roll_call = std::min(roll_call, now);
        }
      }
      if (now >= roll_call) {
        rings = true;
        const auto ask = [&](std::span<const uint32_t> ranks) {
          for (const uint32_t r : ranks) {
            if (r < size_ && r != rank_ && asked.insert(r).second) {
              mail_->ask(r, *channel_);
            }
          }
        };
        ask(absent());
        for (const auto& [r, theirs] : channel_->answers) {
          ask(theirs);
        }
      }
      for (const auto& [r, named] : ended) {  // one that is not missed has ended behind this call
        if (!moved && now >= named && asked.contains(r) && !channel_->answers.contains(r)) {
          const std::optional<int64_t> pid = mail_->pid_of(r);
          throw base::TransportError(
              pid ? ended_text(base::cat("rank ", r, " (pid ", *pid, ")"), rank_, call())
                  : left_text(base::cat("rank ", r), call()));
        }
      }
      if (now >= deadline_) {
        std::vector<uint32_t> silent;
        std::ranges::copy_if(asked, std::back_inserter(silent),
                             [&](uint32_t r) { return !channel_->answers.contains(r); });
        std::string text = late_text(silent.empty() ? absent() : silent, call(), timeout_s_);
        if (mail_->num_foreign() > 0) {
          text += base::cat("; ", mail_->num_foreign(),
                            " messages came with the token of another launch");
        }
        throw base::TransportError(text);
      }
    }
    if (now >= next_look) {
      failure_->check();
      base::check_interrupt();
      next_look = now + base::kInterruptEvery;
    }
    if (moved) {
      turn = 1;
      nap = kFirstNap;
    } else if (++turn > kBusyTurns + patience.yields) {
      sleep(std::min(nap, rings ? 1e-3 : 1.0));
      nap = std::min(nap * 1.5, mail_->wait_file() < 0 ? patience.longest_nap_s : kLongestSleep);
    } else if (turn > kBusyTurns) {
      ::sched_yield();
    }
  }
}

void Messages::sleep(double at_most_s) {
  {
    const std::lock_guard guard(mail_->mutex());
    if (!mail_->may_sleep(*channel_)) {
      return;
    }
  }
  const int file = mail_->wait_file();
  std::array<pollfd, 2> files{pollfd{channel_->woken, POLLIN, 0}, pollfd{file, POLLIN, 0}};
  // A file that may miss something is not trusted for long.
  const auto ns = in_ns(file < 0 ? at_most_s : std::max(at_most_s, 2e-3)).count();
  const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
  ::ppoll(files.data(), file < 0 ? 1 : 2, &time, nullptr);
  const std::lock_guard guard(mail_->mutex());
  channel_->sleeps = false;
  uint64_t count = 0;
  if ((files[0].revents & POLLIN) != 0) {
    static_cast<void>(!::read(channel_->woken, &count, sizeof count));
  }
}

}  // namespace gear::transport::messages
