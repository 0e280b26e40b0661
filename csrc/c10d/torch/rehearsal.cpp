#include <c10/core/GradMode.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "c10d/torch/copier.h"

namespace gear::c10d {
namespace {

constexpr int64_t kNoise = 0x5A;  // what memory holds that nothing has come to

// Does what it is asked, late, and in order; it lives as long as the process.
class Queue {
 public:
  static Queue& instance() {
    static auto* const queue = new Queue;
    return *queue;
  }

  void add(std::function<void()> what) {
    {
      const std::lock_guard guard(mutex_);
      waiting_.push_back(std::move(what));
    }
    changed_.notify_one();
  }

 private:
  Queue() {
    std::thread([this] { run(); }).detach();
  }

  [[noreturn]] void run() {
    std::minstd_rand random;
    for (;;) {
      std::function<void()> what;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !waiting_.empty(); });
        what = std::move(waiting_.front());
        waiting_.pop_front();
      }
      if (random() % 4 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
      }
      what();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
};

class FlagMark final : public Mark {
 public:
  explicit FlagMark(std::shared_ptr<std::atomic<bool>> flag) : flag_(std::move(flag)) {}
  bool reached() override { return flag_->load(std::memory_order_acquire); }
  void hold_caller() override { flag_->wait(false, std::memory_order_acquire); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

class RehearsalCopier final : public Copier {
 public:
  at::Tensor room(int64_t bytes) override { return at::full({bytes}, kNoise, at::kByte); }

  void follow_caller() override {}

  std::unique_ptr<Mark> copy_in(const at::Tensor& to, const at::Tensor& from) override {
    copy_out(to, from);
    return mark_out();
  }

  void copy_out(const at::Tensor& to, const at::Tensor& from) override {
    Queue::instance().add([to, from] {
      const c10::NoGradGuard no_grad;
      to.copy_(from);
    });
  }

  std::unique_ptr<Mark> mark_out() override {
    const auto flag = std::make_shared<std::atomic<bool>>(false);
    Queue::instance().add([flag] {
      flag->store(true, std::memory_order_release);
      flag->notify_all();
    });
    return std::make_unique<FlagMark>(flag);
  }

  void keep(const at::Tensor& /*tensor*/) override {}

  // There is no stream of the caller's that could wait in its place.
  void after_out(const std::function<void()>& what) override {
    mark_out()->hold_caller();
    what();
  }
};

}  // namespace

std::unique_ptr<Copier> make_rehearsal_copier() { return std::make_unique<RehearsalCopier>(); }

}  // namespace gear::c10d
