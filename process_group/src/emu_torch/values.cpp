#include "emu_torch/values.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace gear::emu {
namespace {

using ::c10d::ReduceOp;
using List = Values::List;
using Lists = Values::Lists;
using Move = Values::Move;
using Wait = std::chrono::milliseconds;
// As what a backend writes: neither autograd nor a mode of the caller's sees it.
using UnseenGuard = at::AutoDispatchBelowADInplaceOrView;

void check_tensor(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.is_cpu() || tensor.is_cuda(), "[emu] a tensor on ", tensor.device(),
                    " was given: those of the host and of CUDA's GPUs are allowed");
}

void check_dense(const at::Tensor& tensor) {
  check_tensor(tensor);
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided,
                    "[emu] a sparse tensor was given: all_reduce by SUM takes them");
}

void check_together(const at::Tensor& one, const at::Tensor& other) {
  TORCH_CHECK_VALUE(one.device() == other.device(), "[emu] tensors on ", one.device(), " and ",
                    other.device(),
                    " were given to one operation: those of one device are allowed");
}

void check_dense(const List& tensors) {
  for (const at::Tensor& tensor : tensors) {
    check_dense(tensor);
    check_together(tensor, tensors.front());
  }
}

// What nothing can be a part of, or a multiple.
bool is_known_by_number(const at::Tensor& tensor) {
  return tensor.is_floating_point() || tensor.is_complex();
}

template <typename Number>
void multiply_each(const at::Tensor& tensor, int weight) {
  auto* const numbers = tensor.data_ptr<Number>();
  std::transform(numbers, numbers + tensor.numel(), numbers,
                 [factor = static_cast<Number>(weight)](Number each) { return each * factor; });
}

// torch's own takes 4 us before its first element, more than the rest of a call.
void multiply(at::Tensor& tensor, int weight) {
  constexpr int64_t kFew = 1024;
  if (weight == 1) {
    return;
  }
  if (tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() &&
      tensor.numel() <= kFew) {
    if (tensor.scalar_type() == at::kFloat) {
      return multiply_each<float>(tensor, weight);
    }
    if (tensor.scalar_type() == at::kDouble) {
      return multiply_each<double>(tensor, weight);
    }
  }
  tensor.mul_(weight);
}

void wait_for(const c10::intrusive_ptr<::c10d::Work>& work) { work->wait(); }

at::Tensor flat(const at::Tensor& tensor) { return tensor.contiguous().view({-1}); }

void check_same(const at::Tensor& one, const at::Tensor& other, const char* what) {
  TORCH_CHECK_VALUE(one.scalar_type() == other.scalar_type(), "[emu] ", what, ": ",
                    one.scalar_type(), " and ", other.scalar_type(), " do not go together");
  check_together(one, other);
}

// That `whole` is as long as `times` of `part`.
void check_times(const at::Tensor& whole, const at::Tensor& part, int64_t times, const char* what) {
  check_same(whole, part, what);
  TORCH_CHECK_VALUE(whole.numel() == part.numel() * times, "[emu] ", what, ": tensors of ",
                    whole.numel(), " and of ", part.numel(), " elements: ", times,
                    " times as many are allowed");
}

void check_as_many(size_t outputs, size_t inputs, const char* what) {
  TORCH_CHECK_VALUE(outputs == inputs, "[emu] ", what, ": ", outputs, " outputs and ", inputs,
                    " inputs: as many are allowed");
}

// `tensor` = part `index` of what came.
void put_into(const at::Tensor& tensor, const at::Tensor& part) {
  at::Tensor to = tensor;
  to.copy_(part.view(to.sizes()));
}

void check_sum(const at::Tensor& tensor, const ReduceOp& op) {
  const bool is_mean = op.op_ == ReduceOp::AVG || op.op_ == ReduceOp::PREMUL_SUM;
  TORCH_CHECK_VALUE(!(is_mean && tensor.scalar_type() == at::kBool),
                    "[emu] a mean, or a multiple, of bool was asked for: other dtypes are allowed");
}

}  // namespace

::c10d::Backend& Values::inner(at::Device device) const {
  const Inner& one = device.is_cpu() ? host_ : gpu_;
  TORCH_CHECK(one != nullptr, "[emu] the real ranks have no group for tensors on ", device);
  return *one;
}

void Values::set_timeout(std::chrono::milliseconds timeout) {
  for (const Inner& one : {host_, gpu_}) {
    if (one != nullptr) {
      one->setTimeout(timeout);
    }
  }
}

void Values::shut_down() {
  if (gpu_ != nullptr) {
    gpu_->shutdown();
  }
}

void Values::check_rank(int64_t rank, const char* what) const {
  TORCH_CHECK_VALUE(rank >= 0 && rank < size(), "[emu] ", what, " ", rank,
                    " is not in the group: 0 to ", size() - 1, " is allowed");
}

void Values::check_each(size_t given, const char* what) const {
  TORCH_CHECK_VALUE(given == static_cast<size_t>(size()), "[emu] ", given, " ", what,
                    " were given: one for each of ", size(), " ranks is allowed");
}

// A copy of floating point is the mirror's; what programs steer by is nobody's.
void Values::check_known(int64_t root, const at::Tensor& tensor, const char* what) const {
  const auto member = static_cast<int>(root);
  TORCH_CHECK_VALUE(members_.is_real(member) || is_known_by_number(tensor), "[emu] ", what, " of ",
                    tensor.scalar_type(), " from rank ", root,
                    ", which is emulated: nobody knows what it would send; make it real "
                    "(gear.emu.Job(real=...)), or send from a real rank");
}

// Of what all real members have, one after the other.
at::Tensor Values::own_part(const at::Tensor& all) const {
  return all.view({members_.num_real(), -1})[members_.own_index()];
}

// ---- reductions ----

// What the sum of all members has of this one and its copies.
void Values::weigh(at::Tensor& tensor, const ReduceOp& op) const {
  const int weight = members_.weight(members_.own_index());
  switch (op.op_) {
    case ReduceOp::AVG:
      if (is_known_by_number(tensor)) {
        if (weight != size()) {
          tensor.mul_(static_cast<double>(weight) / size());
        }
        return;
      }
      [[fallthrough]];
    case ReduceOp::SUM:
      if (tensor.scalar_type() != at::kBool) {
        multiply(tensor, weight);
      }
      return;
    case ReduceOp::PREMUL_SUM: {
      const auto* const factor =
          dynamic_cast<const ::c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK_VALUE(factor != nullptr, "[emu] PREMUL_SUM has no factor");
      if (factor->tensor_factor.defined()) {
        tensor.mul_(factor->tensor_factor);
      } else {
        tensor.mul_(factor->double_factor);
      }
      multiply(tensor, weight);
      return;
    }
    case ReduceOp::PRODUCT:
      if (tensor.scalar_type() != at::kBool && weight > 1) {
        tensor.pow_(weight);
      }
      return;
    case ReduceOp::BXOR:
      if (weight % 2 == 0) {
        tensor.zero_();
      }
      return;
    default:
      return;
  }
}

// The same of `from`, and all of it, where one member is real: on a GPU a sum is one kernel.
void Values::weigh_into(const at::Tensor& tensor, const at::Tensor& from,
                        const ReduceOp& op) const {
  at::Tensor to = tensor;
  if (op.op_ == ReduceOp::SUM && from.is_cuda() && from.scalar_type() != at::kBool) {
    at::mul_out(to, from.view(to.sizes()),
                c10::scalar_to_tensor(members_.weight(members_.own_index())));
    return;
  }
  put_into(to, from);
  weigh(to, op);
  finish(to, op);
}

// Over the real members; gloo has neither AVG nor PREMUL_SUM, which are sums by now.
void Values::sum(at::Tensor& tensor, const ReduceOp& op, Wait wait) const {
  if (is_alone()) {
    return;
  }
  const bool is_sum = op.op_ == ReduceOp::AVG || op.op_ == ReduceOp::PREMUL_SUM;
  ::c10d::AllreduceOptions options;
  options.timeout = wait;
  options.reduceOp = is_sum ? ReduceOp(ReduceOp::SUM) : op;
  if (tensor.scalar_type() == at::kBool && op.op_ == ReduceOp::SUM) {
    options.reduceOp = ReduceOp(ReduceOp::MAX);  // as a bool has it
  }
  List list{tensor};
  wait_for(inner(tensor).allreduce(list, options));
}

void Values::finish(at::Tensor& tensor, const ReduceOp& op) const {
  if (op.op_ == ReduceOp::AVG && !is_known_by_number(tensor)) {
    tensor.div_(size(), "trunc");
  }
}

Move Values::all_reduce(const List& tensors, const Op& op) const {
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor);
    check_together(tensor, tensors.front());
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided || op.op_ == ReduceOp::SUM,
                      "[emu] another reduction than SUM of a sparse tensor was asked for");
    check_sum(tensor, op);
  }
  return [this, tensors, op](Wait wait) {
    const UnseenGuard unseen;
    for (at::Tensor tensor : tensors) {
      at::Tensor dense = tensor.layout() == at::kStrided ? tensor.contiguous() : tensor;
      weigh(dense, op);
      sum(dense, op, wait);
      finish(dense, op);
      if (!dense.is_same(tensor)) {
        tensor.copy_(dense);
      }
    }
  };
}

Move Values::reduce(const List& tensors, const Op& op, int64_t root) const {
  check_dense(tensors);
  for (const at::Tensor& tensor : tensors) {
    check_sum(tensor, op);
  }
  check_rank(root, "root");
  const bool is_root = root == members_.own();
  const bool is_real = members_.is_real(static_cast<int>(root));
  return [this, tensors, op, is_root, is_real](Wait wait) {
    const UnseenGuard unseen;
    if (!is_real) {
      return;  // an emulated rank has the sum
    }
    for (at::Tensor tensor : tensors) {
      at::Tensor mine = is_root ? tensor.contiguous() : tensor.clone(at::MemoryFormat::Contiguous);
      weigh(mine, op);
      sum(mine, op, wait);
      finish(mine, op);
      if (is_root && !mine.is_same(tensor)) {
        tensor.copy_(mine);
      }
    }
  };
}

// `parts`: by output, those for the real members.
Move Values::scattered_sum(const List& outputs, Lists parts, const Op& op) const {
  for (const at::Tensor& output : outputs) {
    check_sum(output, op);
  }
  return [this, outputs, parts = std::move(parts), op](Wait wait) {
    const UnseenGuard unseen;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (is_alone()) {
        weigh_into(outputs[i], parts[i][0], op);
        continue;
      }
      at::Tensor all = at::cat(parts[i]);
      weigh(all, op);
      sum(all, op, wait);
      finish(all, op);
      put_into(outputs[i], own_part(all));
    }
  };
}

Move Values::reduce_scatter(const List& outputs, const Lists& inputs, const Op& op) const {
  check_as_many(outputs.size(), inputs.size(), "reduce_scatter");
  check_dense(outputs);
  Lists parts(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_each(inputs[i].size(), "inputs of a reduce_scatter");
    check_dense(inputs[i]);
    for (const at::Tensor& input : inputs[i]) {
      check_times(input, outputs[i], 1, "reduce_scatter");
    }
    for (const int member : members_.real()) {
      parts[i].push_back(inputs[i][static_cast<size_t>(member)].reshape({-1}));
    }
  }
  return scattered_sum(outputs, std::move(parts), op);
}

Move Values::reduce_scatter_flat(const List& outputs, const List& inputs, const Op& op) const {
  check_as_many(outputs.size(), inputs.size(), "reduce_scatter");
  check_dense(outputs);
  check_dense(inputs);
  Lists parts(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_times(inputs[i], outputs[i], size(), "reduce_scatter");
    const at::Tensor rows = inputs[i].contiguous().view({size(), -1});
    for (const int member : members_.real()) {
      parts[i].push_back(rows[member]);
    }
  }
  return scattered_sum(outputs, std::move(parts), op);
}

Values::Largest Values::largest(const Largest& own, Wait wait) const {
  at::Tensor all = at::empty({static_cast<int64_t>(own.size())}, at::kLong);
  std::ranges::copy(own, all.data_ptr<int64_t>());
  sum(all, ReduceOp(ReduceOp::MAX), wait);
  Largest found{};
  std::copy_n(all.data_ptr<int64_t>(), found.size(), found.begin());
  return found;
}

// ---- from one to all, from all to one ----

Move Values::broadcast(const List& tensors, int64_t root) const {
  check_dense(tensors);
  check_rank(root, "root");
  for (const at::Tensor& tensor : tensors) {
    check_known(root, tensor, "broadcast");
  }
  const int from = members_.mirror(static_cast<int>(root));
  return [this, tensors, from](Wait wait) {
    const UnseenGuard unseen;
    if (is_alone()) {
      return;
    }
    for (at::Tensor tensor : tensors) {
      at::Tensor dense = tensor.contiguous();
      ::c10d::BroadcastOptions options;
      options.rootRank = from;
      options.timeout = wait;
      List list{dense};
      wait_for(inner(dense).broadcast(list, options));
      if (!dense.is_same(tensor)) {
        tensor.copy_(dense);
      }
    }
  };
}

// What each real member gives, by index.
List Values::gathered(const at::Tensor& own, Wait wait) const {
  if (is_alone()) {
    return {own};
  }
  at::Tensor mine = flat(own);
  at::Tensor all = at::empty({members_.num_real() * mine.numel()}, mine.options());
  ::c10d::AllgatherOptions options;
  options.timeout = wait;
  wait_for(inner(mine)._allgather_base(all, mine, options));
  return all.chunk(members_.num_real());
}

Move Values::all_gather(const Lists& outputs, const List& inputs) const {
  check_as_many(outputs.size(), inputs.size(), "all_gather");
  check_dense(inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_each(outputs[i].size(), "outputs of a gather");
    check_dense(outputs[i]);
    for (const at::Tensor& output : outputs[i]) {
      check_times(output, inputs[i], 1, "all_gather");
    }
  }
  return [this, outputs, inputs](Wait wait) {
    const UnseenGuard unseen;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const List came = gathered(inputs[i], wait);
      for (int member = 0; member < size(); ++member) {
        const at::Tensor& part = came[static_cast<size_t>(members_.mirror(member))];
        put_into(outputs[i][static_cast<size_t>(member)], part.reshape({-1}));
      }
    }
  };
}

Move Values::all_gather_flat(const List& outputs, const List& inputs) const {
  check_as_many(outputs.size(), inputs.size(), "all_gather");
  check_dense(outputs);
  check_dense(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_times(outputs[i], inputs[i], size(), "all_gather");
  }
  return [this, outputs, inputs](Wait wait) {
    const UnseenGuard unseen;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const List came = gathered(inputs[i], wait);
      at::Tensor output = outputs[i];
      at::Tensor whole = output.contiguous();
      const at::Tensor rows = whole.view({size(), -1});
      if (is_alone()) {
        rows.copy_(came[0].reshape({1, -1}).expand_as(rows));
      }
      for (int member = 0; member < size() && !is_alone(); ++member) {
        rows[member].copy_(came[static_cast<size_t>(members_.mirror(member))]);
      }
      if (!whole.is_same(output)) {
        output.copy_(whole);
      }
    }
  };
}

Move Values::gather(const Lists& outputs, const List& inputs, int64_t root) const {
  check_rank(root, "root");
  check_dense(inputs);
  if (root == members_.own()) {
    return all_gather(outputs, inputs);
  }
  const bool is_real = members_.is_real(static_cast<int>(root));
  return [this, inputs, is_real](Wait wait) {
    const UnseenGuard unseen;
    if (is_real) {
      for (const at::Tensor& input : inputs) {
        gathered(input, wait);
      }
    }
  };
}

Move Values::scatter(const List& outputs, const Lists& inputs, int64_t root) const {
  check_rank(root, "root");
  check_dense(outputs);
  TORCH_CHECK_VALUE(members_.is_real(static_cast<int>(root)), "[emu] scatter from rank ", root,
                    ", which is emulated: nobody knows what it would send; make it real "
                    "(gear.emu.Job(real=...)), or scatter from a real rank");
  const bool is_root = root == members_.own();
  if (is_root) {
    check_as_many(outputs.size(), inputs.size(), "scatter");
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_each(inputs[i].size(), "inputs of a scatter");
      check_dense(inputs[i]);
      for (const at::Tensor& input : inputs[i]) {
        check_times(input, outputs[i], 1, "scatter");
      }
    }
  }
  const int from = members_.mirror(static_cast<int>(root));
  return [this, outputs, inputs, is_root, from](Wait wait) {
    const UnseenGuard unseen;
    for (size_t i = 0; i < outputs.size(); ++i) {
      List mine;
      for (const int member : members_.real()) {
        mine.push_back(is_root ? inputs[i][static_cast<size_t>(member)].reshape({-1})
                               : at::empty({outputs[i].numel()}, outputs[i].options()));
      }
      List list{at::cat(mine)};
      if (!is_alone()) {
        ::c10d::BroadcastOptions options;
        options.rootRank = from;
        options.timeout = wait;
        wait_for(inner(list[0]).broadcast(list, options));
      }
      put_into(outputs[i], own_part(list[0]));
    }
  };
}

// ---- all to all ----

// What each real member has for this one, by index, of `for_real`, what this one has for them.
// `outputs`: by member. What is on a GPU comes as long as they are: nobody waits there to be told.
List Values::exchanged(const List& for_real, const List& outputs, Wait wait) const {
  if (is_alone()) {
    return for_real;
  }
  ::c10d::AllToAllOptions options;
  options.timeout = wait;
  at::Tensor input = at::cat(for_real);
  const auto lengths = [](const List& of) {
    std::vector<int64_t> found;
    std::ranges::transform(of, std::back_inserter(found),
                           [](const auto& one) { return one.numel(); });
    return found;
  };
  std::vector<int64_t> sent = lengths(for_real);
  if (!input.is_cpu()) {
    List from_real;
    for (const int member : members_.real()) {
      from_real.push_back(outputs[static_cast<size_t>(member)]);
    }
    std::vector<int64_t> taken = lengths(from_real);
    at::Tensor output = at::empty({std::reduce(taken.begin(), taken.end())}, input.options());
    wait_for(inner(input).alltoall_base(output, input, taken, sent, options));
    return output.split_with_sizes(taken);
  }
  at::Tensor counts = at::empty({members_.num_real()}, at::kLong);
  std::ranges::copy(sent, counts.data_ptr<int64_t>());
  at::Tensor theirs = at::empty_like(counts);
  std::vector<int64_t> alike;
  std::vector<int64_t> likewise;
  wait_for(inner(counts).alltoall_base(theirs, counts, alike, likewise, options));
  std::vector<int64_t> taken(theirs.data_ptr<int64_t>(),
                             theirs.data_ptr<int64_t>() + theirs.numel());
  const std::vector<int64_t> parts = taken;  // gloo keeps what it is given
  at::Tensor output =
      at::empty({std::accumulate(parts.begin(), parts.end(), int64_t{0})}, input.options());
  wait_for(inner(input).alltoall_base(output, input, taken, sent, options));
  return output.split_with_sizes(parts);
}

Move Values::all_to_all(const List& outputs, const List& inputs) const {
  check_each(outputs.size(), "outputs of an all_to_all");
  check_each(inputs.size(), "inputs of an all_to_all");
  check_dense(outputs);
  check_dense(inputs);
  check_together(outputs.front(), inputs.front());
  return [this, outputs, inputs](Wait wait) {
    const UnseenGuard unseen;
    List mine;
    for (const int member : members_.real()) {
      mine.push_back(inputs[static_cast<size_t>(member)].reshape({-1}));
    }
    const List came = exchanged(mine, outputs, wait);
    for (int member = 0; member < size(); ++member) {
      const at::Tensor& part = came[static_cast<size_t>(members_.mirror(member))];
      const at::Tensor& output = outputs[static_cast<size_t>(member)];
      TORCH_CHECK_VALUE(output.numel() == part.numel(), "[emu] all_to_all: rank ", member,
                        members_.is_real(member) ? "" : ", which is emulated,", " sends ",
                        part.numel(), " elements, as its mirror ",
                        members_.real()[static_cast<size_t>(members_.mirror(member))],
                        " does, and ", output.numel(), " are taken");
      put_into(output, part);
    }
  };
}

Move Values::all_to_all_rows(const at::Tensor& output, const at::Tensor& input,
                             const std::vector<int64_t>& output_splits,
                             const std::vector<int64_t>& input_splits) const {
  const auto parts = [this](const at::Tensor& tensor, const std::vector<int64_t>& splits,
                            const char* what) {
    check_dense(tensor);
    const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
    if (splits.empty()) {
      TORCH_CHECK_VALUE(rows % size() == 0, "[emu] all_to_all: ", rows, " rows of the ", what,
                        " for ", size(), " ranks: a multiple is allowed without splits");
      return tensor.split_with_sizes(
          std::vector<int64_t>(static_cast<size_t>(size()), rows / size()));
    }
    check_each(splits.size(), "splits of an all_to_all");
    const int64_t sum = std::accumulate(splits.begin(), splits.end(), int64_t{0});
    TORCH_CHECK_VALUE(sum == rows && std::ranges::min(splits) >= 0, "[emu] all_to_all: splits of ",
                      sum, " rows, and the ", what, " has ", rows);
    return tensor.split_with_sizes(splits);
  };
  check_same(output, input, "all_to_all");
  return all_to_all(parts(output, output_splits, "output"), parts(input, input_splits, "input"));
}

}  // namespace gear::emu
