#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "ranks/wire.h"

namespace gear::process_group::testing {

/// Messages between ranks of this process. Those of different ranks, lines or tags come in any
/// order, some looks late; a long one is read where it is when it is taken, as MPI does.
class Post {
 public:
  /// `lateness`: a message is found at that many looks at most after it was sent. 0: at once.
  explicit Post(int ranks, uint32_t lateness = 0, uint32_t seed = 0)
      : boxes_(static_cast<size_t>(ranks)), lateness_(lateness), random_(seed) {}

  int size() const { return static_cast<int>(boxes_.size()); }
  /// Messages that nobody has taken or dropped.
  size_t left() {
    const std::lock_guard guard(mutex_);
    size_t count = 0;
    for (const Box& box : boxes_) {
      count += box.waiting.size() + box.found.size();
    }
    return count;
  }

  /// A rank's end of it.
  class Desk final : public Wire {
   public:
    Desk(Post& post, int rank) : post_(post), rank_(rank) {}

    Place place() const noexcept override { return {rank_, post_.size()}; }
    int highest_tag() const noexcept override { return 1 << 30; }
    bool is_abandoned() const { return abandoned_; }
    /// Requests that were given to it after they had ended: MPI reads and frees them again.
    int stale() const { return stale_; }
    /// What is under way does not settle any more.
    void jam() { is_jammed_ = true; }
    int waits_in_vain() const { return waits_in_vain_; }

    Request send(const Address& to, const std::byte* from, uint64_t bytes) override {
      return keep(post_.add(rank_, to, from, bytes));
    }
    std::optional<Arrival> look(const Address& from) override { return post_.find(rank_, from); }
    Request take(const Arrival& come, std::byte* to) override {
      post_.give(rank_, come, to);
      return keep(std::make_shared<std::atomic<bool>>(true));
    }
    void read(const Arrival& come, std::byte* to) override { post_.give(rank_, come, to); }
    void drop(const Arrival& come) noexcept override { post_.give(rank_, come, nullptr); }

    bool test(std::span<Request> open) override {
      bool any = false;
      for (Request& request : open) {
        const auto found = find(request);
        if (found != under_way_.end() && *found->second) {
          under_way_.erase(found);
          request = Request::kNone;
          any = true;
        }
      }
      return any;
    }
    bool settle(std::span<Request> open, bool waits) noexcept override {
      if (is_jammed_ && std::ranges::any_of(open, [&](Request request) {
            const auto found = find(request);
            return found != under_way_.end() && !*found->second;
          })) {
        waits_in_vain_ += waits ? 1 : 0;
        return false;
      }
      for (Request& request : open) {
        const auto found = find(request);
        if (found != under_way_.end()) {
          post_.take_back(found->second);
          under_way_.erase(found);
        }
        request = Request::kNone;
      }
      return true;
    }
    void tell(const Address& to, const void* bytes, size_t size) noexcept override {
      post_.add(rank_, to, static_cast<const std::byte*>(bytes), size, true);
    }
    void abandon() noexcept override { abandoned_ = true; }

   private:
    using UnderWay = std::map<Request, std::shared_ptr<std::atomic<bool>>>;

    UnderWay::iterator find(Request request) {
      const auto found = under_way_.find(request);
      stale_ += request != Request::kNone && found == under_way_.end() ? 1 : 0;
      return found;
    }
    Request keep(std::shared_ptr<std::atomic<bool>> ended) {
      under_way_.emplace(Request{++last_}, std::move(ended));
      return Request{last_};
    }

    Post& post_;
    int rank_;
    uint64_t last_ = 0;
    UnderWay under_way_;
    bool abandoned_ = false;
    int stale_ = 0;
    bool is_jammed_ = false;
    int waits_in_vain_ = 0;
  };

 private:
  static constexpr uint64_t kShort = 64;  // what is sent at once, as a copy

  struct Item {
    int from;
    Wire::Line line;
    int tag;
    const std::byte* bytes;
    uint64_t length;
    std::vector<std::byte> copy;
    uint64_t comes;  // in looks of its receiver
    std::shared_ptr<std::atomic<bool>> ended;
  };
  struct Box {
    std::deque<Item> waiting;
    std::map<uint64_t, Item> found;  // by handle
    uint64_t looks = 0;
    uint64_t last = 0;
    std::map<std::tuple<int, Wire::Line, int>, uint64_t> latest;  // when the last of a lane comes
  };

  std::shared_ptr<std::atomic<bool>> add(int from, const Wire::Address& to, const std::byte* bytes,
                                         uint64_t length, bool as_copy = false) {
    const std::lock_guard guard(mutex_);
    Box& box = boxes_.at(static_cast<size_t>(to.peer));
    Item item{from, to.line, to.tag, bytes, length, {}, box.looks, nullptr};
    as_copy = as_copy || length <= kShort;
    if (as_copy && length > 0) {
      item.copy.assign(bytes, bytes + length);
    }
    item.bytes = as_copy ? nullptr : bytes;
    if (lateness_ > 0) {
      uint64_t& latest = box.latest[{from, to.line, to.tag}];
      latest = item.comes = std::max(latest, box.looks + random_() % (lateness_ + 1));
    }
    item.ended = std::make_shared<std::atomic<bool>>(as_copy);
    auto ended = item.ended;
    box.waiting.push_back(std::move(item));
    return ended;
  }

  // Of a message that nobody has found: it is as if it had not been sent.
  void take_back(const std::shared_ptr<std::atomic<bool>>& ended) {
    const std::lock_guard guard(mutex_);
    for (Box& box : boxes_) {
      std::erase_if(box.waiting, [&](const Item& item) { return item.ended == ended; });
    }
  }

  std::optional<Wire::Arrival> find(int rank, const Wire::Address& from) {
    const std::lock_guard guard(mutex_);
    Box& box = boxes_[static_cast<size_t>(rank)];
    ++box.looks;
    const auto found = std::ranges::find_if(box.waiting, [&](const Item& item) {
      return (from.peer == Wire::kAnyone || item.from == from.peer) && item.line == from.line &&
             item.tag == from.tag && item.comes <= box.looks;
    });
    if (found == box.waiting.end()) {
      return std::nullopt;
    }
    const Wire::Arrival come{found->from, found->length, ++box.last};
    box.found.emplace(box.last, std::move(*found));
    box.waiting.erase(found);
    return come;
  }

  void give(int rank, const Wire::Arrival& come, std::byte* to) {
    const std::lock_guard guard(mutex_);
    Box& box = boxes_[static_cast<size_t>(rank)];
    const auto found = box.found.find(come.handle);
    const Item& item = found->second;
    if (to != nullptr && item.length > 0) {
      std::memcpy(to, item.bytes != nullptr ? item.bytes : item.copy.data(), item.length);
    }
    *item.ended = true;
    box.found.erase(found);
  }

  std::mutex mutex_;
  std::vector<Box> boxes_;
  uint32_t lateness_;
  std::minstd_rand random_;
};

}  // namespace gear::process_group::testing
