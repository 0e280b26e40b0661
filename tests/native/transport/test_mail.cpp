// The mail of a rank over frames that a test holds in its hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "transport/messages/mail.h"
#include "transport/messages/messages.h"

using namespace gear::transport;
using namespace gear::transport::messages;
using gear::base::TransportError;

namespace {

constexpr uint64_t kToken = 7;

struct Frame {
  uint32_t rank;
  FrameHead head;
  std::vector<std::byte> bytes;
};

// Nothing moves by itself.
class HeldFrames final : public Frames {
 public:
  std::string_view name() const noexcept override { return "held"; }
  uint64_t payload_bytes() const noexcept override { return kMostWords; }
  Patience patience() const noexcept override { return {0, 1e-4}; }
  bool may_go_unread() const noexcept override { return goes_unread; }

  bool send(uint32_t rank, const FrameHead& head, ConstBytes bytes, uint32_t& leaving) override {
    if (unreachable.contains(rank)) {
      throw TransportError("[transport] unreachable");
    }
    if (refusals > 0) {
      --refusals;
      return false;
    }
    sent.push_back({rank, head, {bytes.begin(), bytes.end()}});
    if (sent_to) {
      sent_to->push_back(sent.back());
    }
    if (echoes) {
      coming.push_back(sent.back());
      coming.back().head.source = rank;
    }
    if (head.channel == stay) {
      ++leaving;
      staying.push_back(&leaving);
    }
    return true;
  }
  uint32_t under_way(uint32_t) const override { return static_cast<uint32_t>(staying.size()); }
  bool progress(const Arrived& arrived) override {
    if (failures > 0) {
      --failures;
      throw TransportError("[transport] a message did not leave");
    }
    if (stay == 0) {
      for (uint32_t* const leaving : std::exchange(staying, {})) {
        --*leaving;
      }
    }
    if (coming.empty()) {
      return false;
    }
    const Frame frame = std::move(coming.front());
    coming.pop_front();
    arrived(frame.head, frame.bytes);
    return true;
  }

  bool has_ended(uint32_t rank) override { return ended.contains(rank); }

  void come(FrameKind kind, uint32_t source, uint64_t channel, uint64_t call,
            uint32_t round = UINT32_MAX) {
    FrameHead head{};
    head.token = kToken;
    head.version = FrameHead::kVersion;
    head.kind = kind;
    head.source = source;
    head.channel = channel;
    head.call = call;
    head.round = round;
    coming.push_back({0, head, {}});
  }

  std::vector<Frame> sent;
  std::deque<Frame> coming;
  bool goes_unread = false;
  bool echoes = false;  // whom a frame goes to sends the same
  uint64_t stay = 0;    // the channel of which nothing leaves
  std::vector<uint32_t*> staying;
  std::set<uint32_t> unreachable;
  std::set<uint32_t> ended;
  std::shared_ptr<std::vector<Frame>> sent_to;  // what is sent, too
  int refusals = 0;                             // of sends that come
  int failures = 0;                             // of those that are under way
};

struct Held {
  HeldFrames* frames;  // of mail
  std::shared_ptr<Mail> mail;
};

Held held_mail(uint32_t size) {
  auto frames = std::make_unique<HeldFrames>();
  HeldFrames* const kept = frames.get();
  auto mail = std::make_shared<Mail>(std::move(frames), kToken);
  mail->know(0, size);
  return {kept, std::move(mail)};
}

auto num_files() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

}  // namespace

TEST_CASE("mail: a channel that is closed leaves no open file") {
  const Held held = held_mail(2);
  const auto before = num_files();
  for (uint64_t id = 1; id <= 20; ++id) {
    Mail::close(held.mail->open(id));
    held.frames->come(FrameKind::kExchange, 1, 100 + id, 1);
    while (held.mail->progress(nullptr)) {
    }
  }
  CHECK(num_files() == before);
}

// As when that rank, having taken all that it wanted, waits for this one elsewhere.
TEST_CASE("mail: a call does not wait for what another transport of its rank sends") {
  const Held held = held_mail(2);
  held.frames->echoes = true;
  Messages first(held.mail, 0, 2, 5);
  const std::unique_ptr<Transport> twin = first.duplicate();
  const std::byte word{1};
  const std::vector<ConstBytes> to{{}, {&word, 1}};
  held.frames->stay = 1;  // the channel of `first`
  const size_t before = held.frames->sent.size();
  std::string failed;
  std::atomic<bool> has_failed{false};
  std::thread waiting([&] {
    try {
      first.exchange(to);
    } catch (const TransportError& error) {
      failed = error.what();
      has_failed = true;
    }
  });
  for (size_t sent = before; sent == before && !has_failed;) {
    const std::lock_guard guard(held.mail->mutex());
    sent = held.frames->sent.size();
  }
  CHECK_NOTHROW(CHECK(twin->exchange(to)[1].size() == 1));
  {
    const std::lock_guard guard(held.mail->mutex());
    held.frames->stay = 0;
  }
  waiting.join();
  CHECK(failed.empty());
}

TEST_CASE("mail: who asks before this rank is in the call hears when it is") {
  const Held held = held_mail(4);
  Channel& channel = held.mail->open(5);
  channel.call = 3;
  held.frames->come(FrameKind::kAsk, 1, 5, 4);
  held.frames->come(FrameKind::kAsk, 3, 5, 5);
  while (held.mail->progress(nullptr)) {
  }
  CHECK(held.frames->sent.empty());

  channel.call = 4;
  channel.in_call = true;
  channel.awaited = {2};
  held.mail->answer_askers(channel);
  held.mail->answer_askers(channel);
  held.mail->progress(nullptr);
  REQUIRE(held.frames->sent.size() == 1);
  const Frame& answer = held.frames->sent[0];
  CHECK(answer.rank == 1);
  CHECK(answer.head.kind == FrameKind::kAnswer);
  CHECK(answer.head.call == 4);
  const std::vector<uint32_t> awaited{2};
  CHECK(std::ranges::equal(answer.bytes, std::as_bytes(std::span(awaited))));

  channel.call = 5;
  held.mail->answer_askers(channel);
  held.mail->progress(nullptr);
  REQUIRE(held.frames->sent.size() == 2);
  CHECK(held.frames->sent[1].rank == 3);
}

TEST_CASE("mail: a rank that is through a call at once has answered who asked before and after") {
  const Held held = held_mail(3);
  Messages messages(held.mail, 0, 3, 10);
  held.frames->come(FrameKind::kAsk, 1, 1, 1);
  messages.look();
  CHECK(held.frames->sent.empty());
  const std::vector<ConstBytes> nothing(3);
  messages.exchange(nothing, std::vector<uint64_t>(3));
  REQUIRE(held.frames->sent.size() == 1);
  held.frames->come(FrameKind::kAsk, 2, 1, 1);
  messages.look();
  messages.look();
  REQUIRE(held.frames->sent.size() == 2);
  for (const uint32_t r : {1U, 2U}) {
    const Frame& answer = held.frames->sent[r - 1];
    CHECK(answer.rank == r);
    CHECK(answer.head.kind == FrameKind::kAnswer);
    CHECK(answer.head.call == 1);
    CHECK(answer.bytes.empty());
  }
}

TEST_CASE("mail: an answer counts for the call that was asked about alone") {
  const Held held = held_mail(3);
  Channel& channel = held.mail->open(5);
  channel.call = 2;
  channel.in_call = true;
  held.frames->come(FrameKind::kAnswer, 1, 5, 1);
  held.frames->come(FrameKind::kAnswer, 2, 5, 2);
  while (held.mail->progress(nullptr)) {
  }
  CHECK(channel.answers.size() == 1);
  CHECK(channel.answers.contains(2));
}

TEST_CASE("mail: a thread does not fall asleep on what another has taken in for it") {
  const Held held = held_mail(2);
  Channel& channel = held.mail->open(5);
  channel.call = 1;
  channel.in_call = true;
  channel.kind = FrameKind::kExchange;
  for (const FrameKind kind : {FrameKind::kExchange, FrameKind::kLeft, FrameKind::kGaveUp}) {
    channel.news = false;
    CHECK(held.mail->may_sleep(channel));
    channel.sleeps = false;
    held.frames->come(kind, 1, 5, 1);
    held.mail->progress(nullptr);
    CHECK_FALSE(held.mail->may_sleep(channel));
  }
}

TEST_CASE("mail: words leave, whatever becomes of other messages") {
  const Held held = held_mail(3);
  held.frames->failures = 3;
  held.frames->refusals = 2;
  held.mail->tell(2, "why");
  held.mail->linger(std::chrono::seconds(10));
  REQUIRE(held.frames->sent.size() == 1);
  CHECK(held.frames->sent[0].rank == 2);
  CHECK(held.frames->sent[0].head.kind == FrameKind::kGaveUp);
}

TEST_CASE("mail: words that a busy rank takes late leave before its mail is gone") {
  Held held = held_mail(3);
  held.frames->goes_unread = true;
  held.frames->refusals = 1'000'000'000;
  REQUIRE(held.mail->first_telling());
  held.mail->tell(2, "why");
  held.mail->linger(std::chrono::milliseconds(10));
  REQUIRE(held.frames->sent.empty());
  auto sent = std::make_shared<std::vector<Frame>>();
  held.frames->sent_to = sent;
  held.frames->refusals = 20;
  held.mail.reset();
  REQUIRE(sent->size() == 1);
  CHECK(sent->front().rank == 2);
}

TEST_CASE("mail: words that do not leave are waited for once, however many transports ask") {
  const Held held = held_mail(3);
  held.frames->goes_unread = true;
  held.frames->refusals = 1'000'000'000;
  REQUIRE(held.mail->first_telling());
  CHECK_FALSE(held.mail->first_telling());
  held.mail->tell(2, "why");
  held.mail->finish_telling();
  const int left = held.frames->refusals;
  CHECK(left < 1'000'000'000);
  held.mail->finish_telling();
  CHECK(held.frames->refusals == left);
}

TEST_CASE("mail: nobody waits for words to a rank that has ended") {
  const Held held = held_mail(3);
  held.frames->refusals = 1'000'000'000;
  held.frames->ended = {2};
  held.mail->tell(2, "why");
  held.mail->linger(std::chrono::seconds(10));
  CHECK(held.frames->refusals == 1'000'000'000 - 1);
}

TEST_CASE("mail: one that cannot be reached hides nobody who is there") {
  const Held held = held_mail(4);
  held.frames->unreachable = {1};
  Messages messages(held.mail, 0, 4, 10);
  held.frames->failures = 1;
  CHECK(messages.present(0.02) == std::vector<uint32_t>{0});
  const auto to_2 = std::ranges::find(held.frames->sent, 2U, &Frame::rank);
  REQUIRE(to_2 != held.frames->sent.end());
  const uint64_t roll = to_2->head.channel;
  held.frames->come(FrameKind::kAllgather, 2, roll, 2);
  held.frames->come(FrameKind::kAllgather, 3, roll, 2);
  CHECK(messages.present(0.05) == std::vector<uint32_t>{0, 2, 3});
}
