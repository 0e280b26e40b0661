#include "bindings/arrays/gpu_arrays.h"

#include <pybind11/numpy.h>

#include <algorithm>

#include "base/errors.h"
#include "base/gpu/devices.h"
#include "bindings/arrays/dlpack.h"

namespace gear::bindings {
namespace {

// As the array API standard numbers a consumer's streams: 0, which CUDA has for the default one, is
// not allowed, and -1 stands for an array that needs no wait.
constexpr intptr_t kDefaultStream = 1;
constexpr intptr_t kNoWait = -1;

std::pair<int, int> device_of(py::handle array) {
  const py::object device = array.attr("__dlpack_device__")();
  return {device[py::int_(0)].cast<int>(), device[py::int_(1)].cast<int>()};
}

}  // namespace

GpuArrays::GpuArrays(store::Shard& shard, py::function stream_of)
    : stream_of_(std::move(stream_of)), taken_(shard.pages().make_taken_arrays()) {}

bool GpuArrays::is_on_gpu(py::handle value) {
  return !PyFloat_Check(value.ptr()) && !py::isinstance<py::array>(value) &&
         py::hasattr(value, "__dlpack_device__") && device_of(value).first == kDLCUDA;
}

void GpuArrays::begin() {
  while (!lasting_.empty() && lasting_.front().first->done()) {
    lasting_.pop_front();
  }
  stream_.reset();
  others_.clear();
  outlast_ = may_be_overwritten_ = false;
  capsules_.clear();
  arrays_.clear();
  copies_.clear();
}

py::capsule GpuArrays::capsule_of(py::handle array) {
  const int device = device_of(array).second;
  if (taken_ && device != taken_->device()) {
    throw base::InvalidArgument(base::cat("[writer] an array on GPU ", device,
                                          ", and the buffer's rows lie in the memory ", "of GPU ",
                                          taken_->device(), ": give arrays of that one"));
  }
  if (!taken_) {
    stream_.reset();  // each is fetched by itself
  }
  const py::object said = stream_of_(array, device);
  std::optional<uintptr_t> own;
  if (said.is_none() || said.cast<int64_t>() == kMayBeOverwritten) {
    outlast_ = true;
    may_be_overwritten_ |= !said.is_none();
  } else {
    own = said.cast<uintptr_t>();
  }
  if (!stream_) {
    stream_ = own ? *own : taken_ ? taken_->stream() : uintptr_t{0};
  }
  const bool at_home = own == stream_;
  if (own && !at_home) {
    others_.push_back(*own);
  }
  const auto consumer = static_cast<intptr_t>(*stream_);
  const py::capsule capsule =
      array.attr("__dlpack__")(py::arg("stream") = at_home         ? kNoWait
                                                   : consumer == 0 ? kDefaultStream
                                                                   : consumer);
  capsules_.push_back(capsule);
  return capsule;
}

std::shared_ptr<std::byte[]> GpuArrays::fetched(const std::byte* data, uint64_t bytes) const {
  if (taken_) {
    return nullptr;
  }
  auto there = std::make_shared<std::byte[]>(bytes);
  const py::gil_scoped_release release;
  base::fetch({there.get(), bytes}, data, *stream_);
  return there;
}

void GpuArrays::add(const std::byte* data, uint64_t bytes, bool to_host, const std::byte** copy) {
  arrays_.push_back({data, bytes, to_host});
  copies_.push_back(copy);
}

void GpuArrays::take() {
  if (arrays_.empty()) {
    return;
  }
  places_.resize(arrays_.size());
  auto end = taken_->take(arrays_, *stream_, others_, places_);
  for (size_t i = 0; i < places_.size(); ++i) {
    *copies_[i] = places_[i];
  }
  if (outlast_) {
    lasting_.emplace_back(std::move(end), std::move(capsules_));
    capsules_.clear();
  }
  if (may_be_overwritten_) {
    taken_->wait();
  }
}

}  // namespace gear::bindings
