#include "bindings/ranks/group_transport.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "transport/collective.h"

namespace gear::bindings {
namespace {

using transport::Bytes;
using transport::ConstBytes;

// Views of nothing need an address all the same.
std::byte g_nothing{};

py::memoryview view(Bytes bytes) {
  return py::memoryview::from_memory(static_cast<void*>(bytes.empty() ? &g_nothing : bytes.data()),
                                     static_cast<py::ssize_t>(bytes.size()), false);
}

py::memoryview view(ConstBytes bytes) {
  return py::memoryview::from_memory(
      static_cast<const void*>(bytes.empty() ? &g_nothing : bytes.data()),
      static_cast<py::ssize_t>(bytes.size()));
}

py::list views(std::span<const ConstBytes> ranges) {
  py::list list;
  for (const ConstBytes range : ranges) {
    list.append(view(range));
  }
  return list;
}

py::object in_python(std::span<const uint64_t> sizes) {
  if (sizes.empty()) {
    return py::none();
  }
  py::list list;
  for (const uint64_t size : sizes) {
    list.append(size);
  }
  return list;
}

// The exception as one of the core, which threads without the GIL can carry. What a handler of a
// signal raised goes up as it is.
[[noreturn]] void rethrow(const py::error_already_set& error, const char* call) {
  const std::string text = py::str(error.value());
  if (error.matches(transport_error())) {
    throw base::TransportError(text);
  }
  if (!error.matches(PyExc_Exception)) {
    throw error;
  }
  const std::string type = py::str(error.type().attr("__name__"));
  throw base::TransportError(base::cat("[transport] ", call, " by the group failed: ", type,
                                       text.empty() ? "" : ": ", text));
}

class GroupTransport final : public transport::Transport {
 public:
  GroupTransport(py::object channel, uint32_t rank, uint32_t size, double timeout_s)
      : channel_(std::move(channel)), rank_(rank), size_(size), timeout_s_(timeout_s), all_(size) {}

  ~GroupTransport() override {
    if (may_take_gil()) {
      const py::gil_scoped_acquire acquire;
      arrived_.clear();
      channel_ = py::object();
    } else {
      // Nobody may give them back any more.
      static_cast<void>(new std::vector(std::move(arrived_)));
      channel_.release();
    }
  }

  std::string_view name() const noexcept override { return "group"; }
  uint32_t rank() const noexcept override { return rank_; }
  uint32_t size() const noexcept override { return size_; }
  double timeout_s() const noexcept override { return timeout_s_; }
  void set_timeout_s(double timeout_s) override {
    transport::check_timeout(timeout_s);
    call("set_timeout_s", [&] { channel_.attr("timeout_s") = timeout_s; });
    timeout_s_ = timeout_s;
  }

  void look() override {
    if (may_take_gil()) {
      call("look", [&] { channel_.attr("look")(); });
    }
  }

  void allgather(ConstBytes mine, Bytes all) override {
    transport::check_allgather(size_, mine, all);
    call("allgather", [&] { channel_.attr("allgather")(view(mine), view(all)); });
  }

  using Transport::exchange;
  std::span<const ConstBytes> exchange(std::span<const ConstBytes> to,
                                       std::span<const uint64_t> sizes) override {
    transport::check_exchange(rank_, size_, to, sizes);
    call("exchange", [&] {
      arrived_.clear();
      for (const py::handle one : channel_.attr("exchange_bytes")(views(to), in_python(sizes))) {
        arrived_.push_back(py::reinterpret_borrow<py::buffer>(one).request());
      }
    });
    if (arrived_.size() != size_) {
      throw base::TransportError(base::cat("[transport] exchange by the group returned ",
                                           arrived_.size(), " entries of ", size_, " ranks"));
    }
    for (uint32_t r = 0; r < size_; ++r) {
      const auto bytes = static_cast<uint64_t>(arrived_[r].size * arrived_[r].itemsize);
      all_[r] = {static_cast<const std::byte*>(arrived_[r].ptr), bytes};
      if (r != rank_ && !transport::is_expected(sizes, r, bytes)) {
        throw base::TransportError(
            transport::other_size_text(r, bytes, rank_, sizes[r], "exchange"));
      }
    }
    all_[rank_] = to[rank_];
    return all_;
  }

  std::unique_ptr<transport::Transport> duplicate() override {
    std::unique_ptr<transport::Transport> copy;
    call("duplicate", [&] {
      copy =
          std::make_unique<GroupTransport>(channel_.attr("duplicate")(), rank_, size_, timeout_s_);
    });
    return copy;
  }

 private:
  template <class Call>
  void call(const char* name, const Call& run) {
    if (!may_take_gil()) {
      throw base::TransportError(
          base::cat("[transport] ", name, " by the group: Python is ending, close loaders first"));
    }
    const py::gil_scoped_acquire acquire;
    try {
      run();
    } catch (const py::error_already_set& error) {
      rethrow(error, name);
    }
  }

  py::object channel_;
  uint32_t rank_;
  uint32_t size_;
  double timeout_s_;
  std::vector<py::buffer_info> arrived_;  // of the last exchange
  std::vector<ConstBytes> all_;
};

}  // namespace

std::unique_ptr<transport::Transport> make_group_transport(py::object channel, uint32_t rank,
                                                           uint32_t size, double timeout_s) {
  transport::check_membership(rank, size, timeout_s);
  return std::make_unique<GroupTransport>(std::move(channel), rank, size, timeout_s);
}

}  // namespace gear::bindings
