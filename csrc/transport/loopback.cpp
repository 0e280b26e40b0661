#include "transport/loopback.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "transport/collective.h"

namespace gear::transport {
namespace {

class Meeting;

// What one rank brings to a collective call.
struct Part {
  std::string_view call;
  ConstBytes mine;
  std::span<const ConstBytes> to;
  std::shared_ptr<Meeting> next;  // of rank 0 in duplicate
};

// Where the ranks of one transport meet: once when all have come, so that each may read what the
// others brought, and once when all have read.
class Meeting {
 public:
  Meeting(uint32_t size, double timeout_s)
      : timeout_s_(timeout_s), parts_(size), here_(size, false), left_(size, false) {}

  double timeout_s() const noexcept { return timeout_s_; }
  uint32_t size() const noexcept { return static_cast<uint32_t>(parts_.size()); }

  // `read(parts)` copies what this rank receives and returns what is wrong with it, if anything.
  template <class Read>
  void run(uint32_t rank, Part part, const Read& read) {
    come(rank, std::move(part));
    std::string wrong = other_call(rank);
    if (wrong.empty()) {
      wrong = read(parts_);
    }
    go(std::move(wrong));
  }

  void leave(uint32_t rank) noexcept {
    const std::lock_guard lock(mutex_);
    left_[rank] = true;
    any_left_ = true;
    changed_.notify_all();
  }

 private:
  void come(uint32_t rank, Part part) {
    std::unique_lock lock(mutex_);
    if (failure_) {
      throw base::TransportError(*failure_);
    }
    const std::string_view call = part.call;
    parts_[rank] = std::move(part);
    here_[rank] = true;
    if (++num_here_ == size()) {
      ++num_met_;
      changed_.notify_all();
      return;
    }
    const auto met = [this, before = num_met_] { return num_met_ != before; };
    changed_.wait_for(lock, std::chrono::duration<double>(timeout_s_),
                      [&] { return met() || any_left_ || failure_; });
    if (met()) {
      return;
    }
    if (!failure_) {
      const std::vector<uint32_t> gone = absent(true);
      failure_ = gone.empty() ? late_text(absent(false), call, timeout_s_) : left_text(gone, call);
      changed_.notify_all();
    }
    throw base::TransportError(*failure_);
  }

  // Without a time-out: all ranks are copying and need nobody for that, and what they copy from
  // must stay.
  void go(std::string wrong) {
    std::unique_lock lock(mutex_);
    if (!wrong.empty() && !failure_) {
      failure_ = std::move(wrong);
    }
    if (--num_here_ == 0) {
      std::fill(here_.begin(), here_.end(), false);
      ++num_parted_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [this, before = num_parted_] { return num_parted_ != before; });
    }
    if (failure_) {
      throw base::TransportError(*failure_);
    }
  }

  // Ranks that have not come, all of them or those that never will.
  std::vector<uint32_t> absent(bool for_good) const {
    std::vector<uint32_t> ranks;
    for (uint32_t r = 0; r < size(); ++r) {
      if (!here_[r] && (!for_good || left_[r])) {
        ranks.push_back(r);
      }
    }
    return ranks;
  }

  std::string other_call(uint32_t rank) const {
    for (uint32_t r = 0; r < size(); ++r) {
      if (parts_[r].call != parts_[rank].call) {
        return other_call_text(r, parts_[r].call, rank, parts_[rank].call);
      }
    }
    return {};
  }

  const double timeout_s_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Part> parts_;  // by rank; read without the lock between the two meetings
  std::vector<bool> here_;
  uint32_t num_here_ = 0;
  uint64_t num_met_ = 0;
  uint64_t num_parted_ = 0;
  std::vector<bool> left_;
  bool any_left_ = false;
  std::optional<std::string> failure_;  // for good
};

void copy(ConstBytes source, Bytes target) {
  if (!source.empty()) {
    std::memcpy(target.data(), source.data(), source.size());
  }
}

class Loopback final : public Transport {
 public:
  Loopback(std::shared_ptr<Meeting> meeting, uint32_t rank)
      : meeting_(std::move(meeting)), rank_(rank) {}
  ~Loopback() override { meeting_->leave(rank_); }

  std::string_view name() const noexcept override { return "loopback"; }
  uint32_t rank() const noexcept override { return rank_; }
  uint32_t size() const noexcept override { return meeting_->size(); }
  double timeout_s() const noexcept override { return meeting_->timeout_s(); }

  void allgather(ConstBytes mine, Bytes all) override {
    check_allgather(size(), mine, all);
    meeting_->run(rank_, {"allgather", mine, {}, nullptr}, [&](const std::vector<Part>& parts) {
      for (uint32_t r = 0; r < size(); ++r) {
        if (parts[r].mine.size() != mine.size()) {
          return other_size_text(r, parts[r].mine.size(), rank_, mine.size(), "allgather");
        }
        copy(parts[r].mine, all.subspan(r * mine.size(), mine.size()));
      }
      return std::string();
    });
  }

  void alltoallv(std::span<const ConstBytes> to, std::span<const Bytes> from) override {
    check_alltoallv(rank_, size(), to, from);
    meeting_->run(rank_, {"alltoallv", {}, to, nullptr}, [&](const std::vector<Part>& parts) {
      for (uint32_t r = 0; r < size(); ++r) {
        const ConstBytes sent = parts[r].to[rank_];
        if (sent.size() != from[r].size()) {
          return other_size_text(r, sent.size(), rank_, from[r].size(), "alltoallv");
        }
        copy(sent, from[r]);
      }
      return std::string();
    });
  }

  std::unique_ptr<Transport> duplicate() override {
    std::shared_ptr<Meeting> next;
    if (rank_ == 0) {
      next = std::make_shared<Meeting>(size(), timeout_s());
    }
    meeting_->run(rank_, {"duplicate", {}, {}, next}, [&](const std::vector<Part>& parts) {
      next = parts[0].next;
      return std::string();
    });
    return std::make_unique<Loopback>(std::move(next), rank_);
  }

 private:
  std::shared_ptr<Meeting> meeting_;
  uint32_t rank_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_loopback(uint32_t size, double timeout_s) {
  check_membership(0, size, timeout_s);
  const auto meeting = std::make_shared<Meeting>(size, timeout_s);
  std::vector<std::unique_ptr<Transport>> ranks;
  ranks.reserve(size);
  for (uint32_t r = 0; r < size; ++r) {
    ranks.push_back(std::make_unique<Loopback>(meeting, r));
  }
  return ranks;
}

}  // namespace gear::transport
