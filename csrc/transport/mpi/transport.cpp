#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "transport/collective.h"
#include "transport/mpi.h"
#include "transport/mpi/messages.h"
#include "transport/mpi/runtime.h"
#include "transport/mpi/waiting.h"

namespace gear::transport {
namespace {

using mpi::check;
using mpi::Messages;
using mpi::Turn;

// A communicator of one's own.
class Communicator {
 public:
  // Duplicates `original`. Collective. What `look` throws ends the wait for the others.
  Communicator(MPI_Comm original, double timeout_s, const std::function<void()>& look)
      : handle_(mpi::duplicate_of(
            original, timeout_s,
            base::cat("[transport] a rank of the MPI communicator did not take part in making a "
                      "transport within ",
                      timeout_s, " s: make it on all ranks"),
            look)) {
    const Turn turn;
    check(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  ~Communicator() {
    if (handle_ != MPI_COMM_NULL && mpi::is_running()) {
      const Turn turn;
      MPI_Comm_free(&handle_);
    }
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  MPI_Comm handle() const noexcept { return handle_; }

  // It stays as it is: messages may be under way.
  void abandon() noexcept {
    handle_ = MPI_COMM_NULL;
    mpi::never_finalise();
  }

 private:
  MPI_Comm handle_;
};

uint32_t size_of(MPI_Comm communicator) {
  int size = 0;
  const Turn turn;
  check(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  return static_cast<uint32_t>(size);
}

uint32_t rank_of(MPI_Comm communicator) {
  int rank = 0;
  const Turn turn;
  check(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  return static_cast<uint32_t>(rank);
}

class PointToPoint final : public MpiTransport, private Failure::Listener {
 public:
  // hear: throws with what the ranks of `original` tell meanwhile.
  PointToPoint(MPI_Comm original, double timeout_s, uint64_t message_bytes,
               std::shared_ptr<Failure> failure, const std::function<void()>& hear)
      : failure_(std::move(failure)),
        communicator_(original, timeout_s,
                      [&] {
                        failure_->check();
                        hear();
                      }),
        rank_(rank_of(original)),
        size_(size_of(original)),
        timeout_s_(timeout_s),
        message_bytes_(message_bytes),
        messages_(communicator_.handle(), rank_, size_, message_bytes, *failure_),
        hearing_(failure_, *this) {}

  std::string_view name() const noexcept override { return "mpi"; }
  uint32_t rank() const noexcept override { return rank_; }
  uint32_t size() const noexcept override { return size_; }
  double timeout_s() const noexcept override { return timeout_s_; }
  void set_timeout_s(double timeout_s) override {
    check_timeout(timeout_s);
    timeout_s_ = timeout_s;
  }

  void look() override {
    failure_->check();
    std::string words;
    {
      const std::lock_guard guard(hearing_mutex_);
      if (communicator_.handle() == MPI_COMM_NULL || !mpi::is_running()) {
        return;
      }
      words = mpi::words_of_any(communicator_.handle());
    }
    if (!words.empty()) {
      failure_->tell(words);
      failure_->check();
    }
  }

  bool gpu_aware() const noexcept override {
    // Not in every MPI: asked of the one that is loaded.
    void* query = ::dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support");
    return query != nullptr && reinterpret_cast<int (*)()>(query)() == 1;
  }

  void allgather(ConstBytes mine, Bytes all) override {
    check_allgather(size_, mine, all);
    gather(Call::kAllgather, mine, all);
  }

  using Transport::exchange;
  std::span<const ConstBytes> exchange(std::span<const ConstBytes> to,
                                       std::span<const uint64_t> sizes) override {
    check_exchange(rank_, size_, to, sizes);
    messages_.inbox().begin(sizes);
    const bool all = sizes.empty();
    run(Call::kExchange, [&](uint32_t source, uint32_t target) {
      if (all || sizes[source] > 0) {
        messages_.receive(source, all ? std::nullopt : std::optional(sizes[source]));
      }
      if (all || !to[target].empty()) {
        messages_.send(target, to[target]);
      }
    });
    return messages_.inbox().all(rank_, to[rank_]);
  }

  std::unique_ptr<Transport> duplicate() override {
    // Names who is missing, which MPI_Comm_idup does not.
    const std::byte here{};
    std::vector<std::byte> all(size_);
    gather(Call::kDuplicate, {&here, 1}, all);
    std::unique_ptr<Transport> copy;
    telling(Call::kDuplicate, [&] {
      copy = std::make_unique<PointToPoint>(communicator_.handle(), timeout_s_, message_bytes_,
                                            failure_, [this] { messages_.hear(); });
    });
    return copy;
  }

 private:
  // Whoever is in a call gets these words, whichever rank began with them.
  void hear(const std::string& text) noexcept override {
    const std::lock_guard guard(hearing_mutex_);
    if (communicator_.handle() == MPI_COMM_NULL || !mpi::is_running()) {
      return;
    }
    // Kept for ever: MPI may read them as long as the process lives.
    const std::string* const words = keep(text);
    for (uint32_t i = 1; i < size_; ++i) {
      const auto peer = static_cast<int>((rank_ + i) % size_);
      const Turn turn;
      MPI_Request request = MPI_REQUEST_NULL;
      if (MPI_Isend(words == nullptr ? nullptr : words->data(),
                    words == nullptr ? 0 : static_cast<int>(words->size()), MPI_BYTE, peer,
                    mpi::kGaveUpTag, communicator_.handle(), &request) == MPI_SUCCESS) {
        MPI_Request_free(&request);
      }
    }
  }

  static const std::string* keep(const std::string& text) noexcept {
    try {
      return std::make_unique<std::string>(text, 0, mpi::kMostWords).release();
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  void gather(Call call, ConstBytes mine, Bytes all) {
    if (mine.empty()) {
      failure_->check();
      return;
    }
    std::ranges::copy(mine, all.subspan(rank_ * mine.size()).begin());
    run(call, [&](uint32_t source, uint32_t target) {
      messages_.receive(source, all.subspan(source * mine.size(), mine.size()));
      messages_.send(target, mine);
    });
  }

  // add(source, target): to messages_ what comes from the one and goes to the other.
  template <class Add>
  void run(Call call, const Add& add) {
    failure_->check();
    telling(call, [&] {
      messages_.begin(call);
      for (uint32_t i = 1; i < size_; ++i) {
        add((rank_ + size_ - i) % size_, (rank_ + i) % size_);
      }
      messages_.wait(timeout_s_);
    });
  }

  // What ends `wait` ends the group.
  template <class Wait>
  void telling(Call call, const Wait& wait) {
    try {
      wait();
    } catch (const base::TransportError& error) {
      failure_->tell(error.what());
      abandon();
      throw;
    } catch (...) {
      failure_->tell_interrupted(rank_, call_name(call));
      abandon();
      throw;
    }
  }

  void abandon() noexcept {
    const std::lock_guard guard(hearing_mutex_);
    communicator_.abandon();
  }

  std::shared_ptr<Failure> failure_;
  std::mutex hearing_mutex_;
  Communicator communicator_;
  uint32_t rank_;
  uint32_t size_;
  double timeout_s_;
  uint64_t message_bytes_;
  Messages messages_;
  Failure::Hearing hearing_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) MpiTransport* gear_make_mpi(
    const MpiOptions& options, const char* version) {
  if (std::strcmp(version, GEAR_VERSION) != 0) {
    throw base::TransportError(base::cat("[transport] libgear_mpi.so belongs to GEAR ",
                                         GEAR_VERSION, ", and this is GEAR ", version,
                                         ": install GEAR again"));
  }
  base::interrupt_check.store(options.interrupt_check);
  mpi::require_runtime();
  MPI_Comm communicator = MPI_COMM_WORLD;
  int between = 0;
  {
    const Turn turn;
    if (options.communicator != 0) {
      communicator = MPI_Comm_f2c(options.communicator);
    }
    check(MPI_Comm_test_inter(communicator, &between), "MPI_Comm_test_inter");
  }
  if (between != 0) {
    throw base::InvalidArgument(
        "[transport] an MPI intercommunicator was given: give one whose ranks form one group");
  }
  return new PointToPoint(communicator, options.timeout_s, options.message_bytes, options.failure,
                          [] {});
}

static_assert(std::is_same_v<decltype(&gear_make_mpi), MpiEntry>);

}  // namespace gear::transport
