#include "transport/messages/mail.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "transport/collective.h"

namespace gear::transport::messages {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostAwaited = 64;  // told in an answer
constexpr std::chrono::milliseconds kGoodbye{250};
constexpr std::chrono::microseconds kNap{200};

}  // namespace

Channel::~Channel() {
  if (woken >= 0) {
    ::close(woken);
  }
}

Mail::Mail(std::unique_ptr<Frames> frames, uint64_t token)
    : frames_(std::move(frames)), token_(token), pid_(::getpid()) {}

Mail::~Mail() {
  if (pid_ != ::getpid() || size_ < 2 || !frames_->may_go_unread()) {
    return;
  }
  if (told_) {
    finish_telling();
    return;
  }
  try {
    for (uint32_t distance = 1; distance < size_; distance *= 2) {
      queue((rank_ + distance) % size_, head(FrameKind::kLeft, 0, 0), {});
    }
    linger(kGoodbye);
  } catch (...) {  // they miss this rank then
  }
}

void Mail::know(uint32_t rank, uint32_t size, const std::vector<Neighbour>& neighbours) {
  GEAR_CHECK(size_ == 0 && rank < size);
  for (const Neighbour& one : neighbours) {
    neighbours_.emplace(one.rank, one.process);
  }
  rank_ = rank;
  size_ = size;
  controls_leaving_.resize(size);
}

Channel& Mail::channel(uint64_t id) {
  const auto place = channels_.find(id);
  return place != channels_.end()
             ? *place->second
             : *channels_.emplace(id, std::make_unique<Channel>(id, size_)).first->second;
}

Channel& Mail::open(uint64_t id) {
  Channel& opened = channel(id);
  opened.woken = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (opened.woken < 0) {
    throw base::TransportError(base::cat("[transport] eventfd: ", std::strerror(errno),
                                         ": allow more open files (ulimit -n)"));
  }
  return opened;
}

// What still comes for it is dropped.
void Mail::close(Channel& channel) {
  if (channel.woken >= 0) {
    ::close(std::exchange(channel.woken, -1));
  }
  channel.closed = true;
  channel.in_call = false;
  channel.sleeps = false;
  channel.messages.clear();
  channel.answers.clear();
  channel.askers.clear();
}

FrameHead Mail::head(FrameKind kind, uint64_t channel, uint64_t call) const {
  FrameHead head{};
  head.token = token_;
  head.version = FrameHead::kVersion;
  head.kind = kind;
  head.source = rank_;
  head.channel = channel;
  head.call = call;
  return head;
}

int64_t Mail::send(uint32_t rank, Channel& channel, uint32_t round, ConstBytes message,
                   uint64_t offset) {
  FrameHead frame = head(channel.kind, channel.id, channel.call);
  frame.round = round;
  frame.offset = offset;
  frame.total = message.size();
  frame.bytes = static_cast<uint32_t>(std::min(message.size() - offset, frames_->payload_bytes()));
  return frames_->send(rank, frame, message.subspan(offset, frame.bytes), channel.leaving[rank])
             ? static_cast<int64_t>(frame.bytes)
             : -1;
}

bool Mail::progress(const Channel* own) {
  const bool sent = send_controls();
  return frames_->progress([&](const FrameHead& head, ConstBytes bytes) {
    sort(head, bytes, own);
  }) || sent;
}

void Mail::queue(uint32_t rank, FrameHead head, ConstBytes bytes) {
  head.bytes = static_cast<uint32_t>(bytes.size());
  head.total = bytes.size();
  controls_.push_back({rank, head, {bytes.begin(), bytes.end()}});
}

bool Mail::send_controls() {
  return std::erase_if(controls_, [&](const Control& control) {
           try {
             return frames_->send(control.rank, control.head, control.bytes,
                                  controls_leaving_[control.rank]);
           } catch (const base::TransportError&) {  // it is past hearing
             return true;
           }
         }) > 0;
}

void Mail::ask(uint32_t rank, const Channel& channel) {
  queue(rank, head(FrameKind::kAsk, channel.id, channel.call), {});
}

void Mail::tell(uint32_t rank, std::string_view words) {
  queue(rank, head(FrameKind::kGaveUp, 0, 0),
        std::as_bytes(std::span(words.substr(0, kMostWords))));
}

bool Mail::all_gone() {
  const auto is_past = [&](uint32_t rank) { return left_.contains(rank) || has_ended(rank); };
  if (!std::ranges::all_of(controls_, is_past, &Control::rank)) {
    return false;
  }
  for (uint32_t r = 0; r < size_; ++r) {
    if (controls_leaving_[r] > 0 && !is_past(r)) {
      return false;
    }
  }
  return true;
}

bool Mail::first_telling() {
  if (told_) {
    return false;
  }
  told_ = Clock::now();
  return true;
}

void Mail::linger(std::chrono::milliseconds at_most) noexcept {
  for (const auto until = Clock::now() + at_most; Clock::now() < until;) {
    bool moved = false;
    try {
      moved = progress(nullptr);
      if (all_gone()) {
        return;
      }
    } catch (...) {  // of a rank that cannot be reached any more
    }
    if (!moved) {
      std::this_thread::sleep_for(kNap);
    }
  }
}

void Mail::finish_telling() noexcept {
  if (told_ && frames_->may_go_unread()) {
    linger(std::chrono::ceil<std::chrono::milliseconds>(*told_ + kLastWords - Clock::now()));
  }
}

void Mail::sort(const FrameHead& head, ConstBytes bytes, const Channel* own) {
  if (head.token != token_ || head.version != FrameHead::kVersion || head.source >= size_ ||
      head.source == rank_) {
    ++num_foreign_;
    return;
  }
  switch (head.kind) {
    case FrameKind::kGaveUp:
      if (words_.empty()) {
        words_ = bytes.empty()
                     ? base::cat("[transport] rank ", head.source,
                                 " has given up: its own output says why")
                     : std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
      wake_all();
      return;
    case FrameKind::kAsk:
      answer(head);
      return;
    case FrameKind::kLeft:
      left_.insert(head.source);
      wake_all();
      return;
    default:
      break;
  }
  Channel& its = channel(head.channel);
  if (head.kind == FrameKind::kAnswer && head.call != its.call) {
    return;  // of a call that is over
  }
  if (head.kind == FrameKind::kAnswer) {
    std::vector<uint32_t>& awaited = its.answers[head.source];
    awaited.resize(bytes.size() / sizeof(uint32_t));
    if (!awaited.empty()) {
      std::memcpy(awaited.data(), bytes.data(), awaited.size() * sizeof(uint32_t));
    }
  } else {
    deliver(its, head, bytes);
  }
  its.news = true;
  if (&its != own) {
    wake(its);
  }
}

void Mail::watch(std::span<const uint32_t> ranks) {
  for (const uint32_t rank : ranks) {
    if (!neighbours_.contains(rank)) {
      frames_->watch(rank);
    }
  }
}

bool Mail::has_ended(uint32_t rank) {
  const auto near = neighbours_.find(rank);
  if (near == neighbours_.end()) {
    return frames_->has_ended(rank);
  }
  if (!ended_.contains(rank) && memory::liveness(near->second) == memory::Liveness::kEnded) {
    ended_.insert(rank);
  }
  return ended_.contains(rank);
}

std::optional<int64_t> Mail::pid_of(uint32_t rank) const {
  const auto near = neighbours_.find(rank);
  return near == neighbours_.end() ? std::nullopt : std::optional<int64_t>(near->second.pid);
}

// A rank that has not come to the call is what the others wait for, until it does.
void Mail::answer(const FrameHead& asked) {
  Channel& its = channel(asked.channel);
  if (its.closed) {
    return;
  }
  if (its.in_call || asked.call <= its.call) {
    answer(asked.source, its, asked.call);
  } else {
    its.askers[asked.source] = asked.call;
  }
}

void Mail::answer(uint32_t rank, const Channel& channel, uint64_t asked_call) {
  const std::span<const uint32_t> awaited(channel.awaited);
  queue(rank, head(FrameKind::kAnswer, channel.id, asked_call),
        std::as_bytes(awaited.first(std::min(awaited.size(), kMostAwaited))));
}

void Mail::answer_askers(Channel& channel) {
  std::erase_if(channel.askers, [&](const auto& asker) {
    if (asker.second == channel.call) {
      answer(asker.first, channel, asker.second);
    }
    return asker.second <= channel.call;
  });
}

void Mail::deliver(Channel& channel, const FrameHead& head, ConstBytes bytes) {
  const auto amiss = [&](const std::string& text) {
    if (channel.fault.empty()) {
      channel.fault = text;
    }
  };
  if (channel.closed) {
    return;
  }
  const FrameKind own = head.call + 1 == channel.call ? channel.former : channel.kind;
  if (head.call <= channel.call && head.kind != own) {
    amiss(other_call_text(head.source, frame_name(head.kind), rank_, frame_name(own)));
    return;
  }
  if (head.call < channel.call || (head.call == channel.call && !channel.in_call)) {
    amiss(other_size_text(head.source, head.total, rank_, 0, frame_name(head.kind)));
    return;
  }
  const auto [place, is_new] =
      channel.messages.try_emplace({head.call, head.round, head.source}, Message{head.kind, {}});
  Message& message = place->second;
  if (is_new && head.total > 0) {
    try {
      message.room = rooms_.take(head.total);
    } catch (const std::bad_alloc&) {
      channel.messages.erase(place);
      amiss(base::cat("[transport] no memory for the ", head.total, " bytes that rank ",
                      head.source, " sends in ", frame_name(head.kind)));
      return;
    }
    message.total = head.total;
  }
  if (head.total != message.total || head.kind != message.kind || head.offset > head.total ||
      bytes.size() > head.total - head.offset || message.arrived + bytes.size() > head.total) {
    amiss(base::cat("[transport] what comes from rank ", head.source, " in ", frame_name(head.kind),
                    " does not fit together: ranks of one group must run ", "the same build"));
    return;
  }
  if (!bytes.empty()) {
    std::memcpy(message.room.get() + head.offset, bytes.data(), bytes.size());
    message.arrived += bytes.size();
  }
}

void Mail::wake_all() {
  for (const auto& [id, one] : channels_) {
    one->news = true;
    wake(*one);
  }
}

void Mail::wake(Channel& channel) {
  if (channel.sleeps) {
    channel.sleeps = false;
    const uint64_t one = 1;
    static_cast<void>(::write(channel.woken, &one, sizeof one));
  }
}

bool Mail::may_sleep(Channel& channel) {
  channel.sleeps = !channel.news && (wait_file() < 0 || frames_->may_sleep());
  return channel.sleeps;
}

}  // namespace gear::transport::messages
