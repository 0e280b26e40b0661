#include "transport/loopback.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "transport/collective.h"
#include "transport/inbox.h"

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
  using Clock = std::chrono::steady_clock;

 public:
  Meeting(uint32_t size, double timeout_s)
      : timeout_s_(timeout_s), parts_(size), here_(size, false), left_(size, false) {}

  double timeout_s() const noexcept { return timeout_s_; }
  void set_timeout_s(double timeout_s) noexcept { timeout_s_ = timeout_s; }
  uint32_t size() const noexcept { return static_cast<uint32_t>(parts_.size()); }

  // `read(parts)` copies what this rank receives and returns what is wrong with it, if anything.
  template <class Read>
  void run(uint32_t rank, Part part, const Read& read) {
    const std::exception_ptr interrupt = come(rank, std::move(part));
    std::string wrong = other_call(rank);
    if (wrong.empty()) {
      wrong = read(parts_);
    }
    go(std::move(wrong));
    if (interrupt) {
      std::rethrow_exception(interrupt);
    }
  }

  void fail(const std::string& text) noexcept {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = text;
    }
    changed_.notify_all();
  }

  void look() {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      throw base::TransportError(*failure_);
    }
  }

  void leave(uint32_t rank) noexcept {
    const std::lock_guard lock(mutex_);
    left_[rank] = true;
    any_left_ = true;
    changed_.notify_all();
  }

 private:
  // Returns what interrupted the wait when the others had come already, and read what this rank
  // brought.
  std::exception_ptr come(uint32_t rank, Part part) {
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
      return nullptr;
    }
    const auto met = [this, before = num_met_] { return num_met_ != before; };
    const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s());
    while (!met() && !any_left_ && !failure_ && Clock::now() < deadline) {
      changed_.wait_for(lock, std::min<std::chrono::duration<double>>(base::kInterruptEvery,
                                                                      deadline - Clock::now()));
      lock.unlock();
      std::exception_ptr interrupt;
      try {
        base::check_interrupt();
      } catch (...) {
        interrupt = std::current_exception();
      }
      lock.lock();
      if (interrupt && met()) {
        return interrupt;
      }
      if (interrupt) {
        if (!failure_) {
          failure_ = interrupted_text(rank, call);
        }
        changed_.notify_all();
        std::rethrow_exception(interrupt);
      }
    }
    if (met()) {
      return nullptr;
    }
    if (!failure_) {
      const std::vector<uint32_t> gone = absent(true);
      failure_ = gone.empty() ? late_text(absent(false), call, timeout_s_)
                              : left_text(ranks_text(gone), call);
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

  std::atomic<double> timeout_s_;
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

class Loopback final : public Transport, private Failure::Listener {
 public:
  Loopback(std::shared_ptr<Meeting> meeting, uint32_t rank, std::shared_ptr<Failure> failure)
      : meeting_(std::move(meeting)),
        rank_(rank),
        inbox_(meeting_->size()),
        failure_(std::move(failure)),
        hearing_(failure_, *this) {}
  ~Loopback() override { meeting_->leave(rank_); }

  std::string_view name() const noexcept override { return "loopback"; }
  uint32_t rank() const noexcept override { return rank_; }
  uint32_t size() const noexcept override { return meeting_->size(); }
  double timeout_s() const noexcept override { return meeting_->timeout_s(); }
  void set_timeout_s(double timeout_s) override {
    check_timeout(timeout_s);
    meeting_->set_timeout_s(timeout_s);
  }

  void look() override {
    failure_->check();
    meeting_->look();
  }

  void allgather(ConstBytes mine, Bytes all) override {
    check_allgather(size(), mine, all);
    run({"allgather", mine, {}, nullptr}, [&](const std::vector<Part>& parts) {
      for (uint32_t r = 0; r < size(); ++r) {
        if (parts[r].mine.size() != mine.size()) {
          return other_size_text(r, parts[r].mine.size(), rank_, mine.size(), "allgather");
        }
        copy(parts[r].mine, all.subspan(r * mine.size(), mine.size()));
      }
      return std::string();
    });
  }

  using Transport::exchange;
  std::span<const ConstBytes> exchange(std::span<const ConstBytes> to,
                                       std::span<const uint64_t> sizes) override {
    check_exchange(rank_, size(), to, sizes);
    return pass(to, sizes);
  }

  std::span<const ConstBytes> exchange_sparse(std::span<const ConstBytes> to,
                                              std::span<const uint8_t> from) override {
    check_sparse(rank_, size(), to, from);
    return pass(to, some_sizes(rank_, to, from));
  }

  std::span<const ConstBytes> pass(std::span<const ConstBytes> to,
                                   std::span<const uint64_t> sizes) {
    inbox_.begin(sizes);
    run({"exchange", {}, to, nullptr}, [&](const std::vector<Part>& parts) {
      for (uint32_t r = 0; r < size(); ++r) {
        const ConstBytes sent = parts[r].to[rank_];
        if (!is_expected(sizes, r, sent.size())) {
          return other_size_text(r, sent.size(), rank_, sizes[r], "exchange");
        }
        if (r != rank_) {
          inbox_.add(r, sent.data(), sent.size());
        }
      }
      return std::string();
    });
    return inbox_.all(rank_, to[rank_]);
  }

  std::unique_ptr<Transport> duplicate() override {
    std::shared_ptr<Meeting> next;
    if (rank_ == 0) {
      next = std::make_shared<Meeting>(size(), timeout_s());
    }
    run({"duplicate", {}, {}, next}, [&](const std::vector<Part>& parts) {
      next = parts[0].next;
      return std::string();
    });
    return std::make_unique<Loopback>(std::move(next), rank_, failure_);
  }

 private:
  void hear(const std::string& text) noexcept override { meeting_->fail(text); }

  template <class Read>
  void run(Part part, const Read& read) {
    const std::string_view call = part.call;
    failure_->check();
    try {
      meeting_->run(rank_, std::move(part), read);
    } catch (const base::TransportError& error) {
      failure_->tell(error.what());
      throw;
    } catch (...) {
      failure_->tell_interrupted(rank_, call);
      throw;
    }
  }

  std::shared_ptr<Meeting> meeting_;
  uint32_t rank_;
  Inbox inbox_;
  std::shared_ptr<Failure> failure_;
  Failure::Hearing hearing_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_loopback(
    uint32_t size, double timeout_s, const std::vector<std::shared_ptr<Failure>>& failures) {
  check_membership(0, size, timeout_s);
  GEAR_CHECK(failures.empty() || failures.size() == size);
  const auto meeting = std::make_shared<Meeting>(size, timeout_s);
  std::vector<std::unique_ptr<Transport>> ranks;
  ranks.reserve(size);
  for (uint32_t r = 0; r < size; ++r) {
    ranks.push_back(
        std::make_unique<Loopback>(meeting, r, or_own(failures.empty() ? nullptr : failures[r])));
  }
  return ranks;
}

}  // namespace gear::transport
