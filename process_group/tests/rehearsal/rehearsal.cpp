// The Python extension _rehearsal: the double of a GPU. Tensors of the host go by way of memory of
// the host, copied by a thread that is late at random, and takes copies of several operations in
// any order, as a GPU does.

#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "torch/gpu/devices.h"

namespace gear::process_group {
namespace {

constexpr uint64_t kNodeBytes = 64 << 10;
constexpr int64_t kNoise = 0x5A;  // what memory holds that nothing has come to

std::atomic<int64_t> copies_left{-1};  // before one fails; below 0: none does

// Does what it is asked, late: that of one line in order, that of several as it comes, as streams
// of a GPU do. It lives as long as the process.
class Lines {
 public:
  static Lines& instance() {
    static auto* const lines = new Lines;
    return *lines;
  }

  uint64_t next() { return num_lines_++; }

  void add(uint64_t line, std::function<void()> what) {
    {
      const std::lock_guard guard(mutex_);
      waiting_[line].push_back(std::move(what));
    }
    changed_.notify_one();
  }

 private:
  Lines() {
    std::thread([this] { run(); }).detach();
  }

  [[noreturn]] void run() {
    std::minstd_rand random;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !waiting_.empty(); });
      }
      if (random() % 4 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
      }
      take(random())();
    }
  }

  std::function<void()> take(uint64_t random) {
    const std::lock_guard guard(mutex_);
    const auto line =
        std::next(waiting_.begin(), static_cast<std::ptrdiff_t>(random % waiting_.size()));
    std::function<void()> what = std::move(line->second.front());
    line->second.pop_front();
    if (line->second.empty()) {
      waiting_.erase(line);
    }
    return what;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::deque<std::function<void()>>> waiting_;  // by line; none is empty
  std::atomic<uint64_t> num_lines_{0};
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
    TORCH_CHECK(copies_left.fetch_sub(1) != 0, "the GPU is lost", std::string(2000, '.'));
    copy(in_, to, from);
    return mark(in_);
  }

  void copy_out(const at::Tensor& to, const at::Tensor& from) override { copy(out_, to, from); }

  std::unique_ptr<Mark> mark_out() override { return mark(out_); }

  void keep(const at::Tensor& /*tensor*/) override {}

  // There is no stream of the caller's that could wait in its place.
  void after_out(const std::function<void()>& what) override {
    mark_out()->hold_caller();
    what();
  }

 private:
  static void copy(uint64_t line, const at::Tensor& to, const at::Tensor& from) {
    Lines::instance().add(line, [to, from] {
      const UnseenGuard unseen;
      to.copy_(from);
    });
  }

  static std::unique_ptr<Mark> mark(uint64_t line) {
    const auto flag = std::make_shared<std::atomic<bool>>(false);
    Lines::instance().add(line, [flag] {
      flag->store(true, std::memory_order_release);
      flag->notify_all();
    });
    return std::make_unique<FlagMark>(flag);
  }

  uint64_t in_ = Lines::instance().next();
  uint64_t out_ = Lines::instance().next();
};

class Rehearsal final : public Devices {
 public:
  bool stages(at::Device /*device*/) const override { return true; }
  std::unique_ptr<Copier> copier(at::Device /*device*/) const override {
    return std::make_unique<RehearsalCopier>();
  }
  uint64_t least_for_node() const override { return kNodeBytes; }
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("devices", [] {
    static const auto* const devices = new Rehearsal;
    return pybind11::capsule(devices);
  });
  // The copy to the host after so many more of this process throws, as one of a GPU that is lost.
  module.def("fail_after", [](int64_t copies) { copies_left = copies; });
}

}  // namespace gear::process_group
