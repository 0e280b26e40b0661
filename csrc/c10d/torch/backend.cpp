#include "c10d/torch/backend.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "c10d/message.h"

namespace gear::c10d {

using ::c10d::OpType;

const Backend::Name Backend::kAllReduceName{Kind::kAllReduce, OpType::ALLREDUCE,
                                            "gear_mpi:all_reduce"};
const Backend::Name Backend::kAllGatherName{Kind::kAllGather, OpType::ALLGATHER,
                                            "gear_mpi:all_gather"};
const Backend::Name Backend::kReduceScatterName{Kind::kReduceScatter, OpType::REDUCE_SCATTER,
                                                "gear_mpi:reduce_scatter"};

Backend::Backend(int rank, const std::vector<int>& world_ranks, const std::string& name,
                 c10::intrusive_ptr<Options> options)
    : ::c10d::Backend(rank, static_cast<int>(world_ranks.size())),
      place_{rank, static_cast<int>(world_ranks.size())},
      ring_(std::make_shared<Ring>(world_ranks, name)),
      options_(std::move(options)) {
  TORCH_CHECK_VALUE(options_->segment_bytes > 0 && options_->segment_bytes % 64 == 0 &&
                        options_->segment_bytes < uint64_t{1} << 31,
                    "[mpi] pieces of ", options_->segment_bytes,
                    " bytes: a multiple of 64 below 2 GiB is allowed");
  GEAR_CHECK(ring_->communicator.place().rank == rank);
  init();
}

uint64_t Backend::getSequenceNumberForGroup() { return ring_->communicator.calls_begun(); }

double Backend::timeout_s(std::chrono::milliseconds asked) const {
  return std::chrono::duration<double>(asked == ::c10d::kUnsetTimeout ? options_->timeout : asked)
      .count();
}

Backend::WorkPointer Backend::run(const Name& name, std::vector<Schedule> schedules,
                                  Tensors tensors, Limits limits) {
  auto work = c10::make_intrusive<Work>(place_.rank, name.type, name.title, std::move(tensors));
  std::vector<std::function<std::shared_ptr<Call>()>> makes;
  const double wait_s = timeout_s(limits.timeout);
  for (Schedule& schedule : schedules) {
    makes.emplace_back([this, &name, &schedule, wait_s] {
      return std::make_shared<Collective>(ring_, name.kind, std::move(schedule),
                                          options_->segment_bytes, wait_s);
    });
  }
  try {
    work->begin(makes, !limits.async);
  } catch (const base::TransportError& error) {
    C10_THROW_ERROR(DistBackendError, error.what());
  }
  return work;
}

Backend::WorkPointer Backend::run_message(const Name& name, const at::Tensor& tensor, int peer,
                                          int tag) {
  const int highest = ring_->communicator.highest_tag();
  TORCH_CHECK_VALUE(tag >= 0 && tag <= highest, "[mpi] tag ", tag, ": 0 to ", highest,
                    " is allowed with this MPI");
  Tensors tensors;
  const Block bytes = name.kind == Kind::kSend ? input(tensor, tensors) : output(tensor, tensors);
  if (name.kind == Kind::kReceive) {
    tensors.results = {tensor};
  }
  auto work = c10::make_intrusive<Work>(place_.rank, name.type, name.title, std::move(tensors));
  const auto make = [&] {
    return std::make_shared<Message>(ring_, name.kind, bytes, peer, tag,
                                     timeout_s(::c10d::kUnsetTimeout));
  };
  try {
    work->begin({make}, false);
  } catch (const base::TransportError& error) {
    C10_THROW_ERROR(DistBackendError, error.what());
  }
  return work;
}

void Backend::check_each_rank(size_t given, const char* what) const {
  TORCH_CHECK_VALUE(given == static_cast<size_t>(size_), "[mpi] ", what, ": ", given,
                    " tensors were given, and the group has ", size_, " ranks: give one a rank");
}

void Backend::check_root(int64_t root) const {
  TORCH_CHECK_VALUE(root >= 0 && root < size_, "[mpi] rank ", root, " is not in the group: 0 to ",
                    size_ - 1, " is allowed");
}

Arithmetic Backend::arithmetic_of(const at::Tensor& tensor, const ::c10d::ReduceOp& op) const {
  Arithmetic arithmetic = gear::c10d::arithmetic_of(tensor, op, size_);
  if (arithmetic.element == Element::kF32 && arithmetic.reduction == Reduction::kSum) {
    arithmetic.wire = wire_;
  }
  return arithmetic;
}

// ---- to all ----

Backend::WorkPointer Backend::broadcast(List& list, const ::c10d::BroadcastOptions& options) {
  at::Tensor& tensor = only(list);
  check_root(options.rootRank);
  Tensors tensors;
  tensors.results = {tensor};
  const int root = static_cast<int>(options.rootRank);
  const Block bytes = rank_ == root ? input(tensor, tensors) : output(tensor, tensors);
  std::vector<Schedule> schedules;
  schedules.push_back(gear::c10d::broadcast(place_, bytes, root));
  return run({Kind::kBroadcast, OpType::BROADCAST, "gear_mpi:broadcast"}, std::move(schedules),
             std::move(tensors), {options.timeout, options.asyncOp});
}

Schedule Backend::reducing(const at::Tensor& tensor, const ::c10d::ReduceOp& op, Tensors& tensors) {
  const Arithmetic arithmetic = arithmetic_of(tensor, op);
  const Block bytes = output(tensor, tensors);
  if (scales(op)) {
    scale(tensors.kept.back(), op);
  }
  tensors.results.push_back(tensor);
  return all_reduce(place_, arithmetic, bytes.bytes, bytes.length / arithmetic.bytes());
}

Backend::WorkPointer Backend::allreduce(List& list, const ::c10d::AllreduceOptions& options) {
  Tensors tensors;
  std::vector<Schedule> schedules;
  schedules.push_back(reducing(only(list), options.reduceOp, tensors));
  return run(kAllReduceName, std::move(schedules), std::move(tensors),
             {options.timeout, options.asyncOp});
}

Backend::WorkPointer Backend::allreduce_coalesced(
    List& list, const ::c10d::AllreduceCoalescedOptions& options) {
  Tensors tensors;
  std::vector<Schedule> schedules;
  for (const at::Tensor& tensor : list) {
    schedules.push_back(reducing(tensor, options.reduceOp, tensors));
  }
  return run(kAllReduceName, std::move(schedules), std::move(tensors),
             {options.timeout, options.asyncOp});
}

Backend::WorkPointer Backend::reduce(List& list, const ::c10d::ReduceOptions& options) {
  at::Tensor& tensor = only(list);
  check_root(options.rootRank);
  const Arithmetic arithmetic = arithmetic_of(tensor, options.reduceOp);
  Tensors tensors;
  tensors.results = {tensor};
  const bool is_root = rank_ == options.rootRank;
  Block bytes{};
  if (scales(options.reduceOp)) {
    at::Tensor scaled = is_root ? tensor : tensor.clone();
    bytes = output(scaled, tensors);
    scale(tensors.kept.back(), options.reduceOp);
  } else {
    bytes = is_root ? output(tensor, tensors) : input(tensor, tensors);
  }
  std::vector<Schedule> schedules;
  schedules.push_back(gear::c10d::reduce(place_, arithmetic, bytes.bytes,
                                         bytes.length / arithmetic.bytes(),
                                         static_cast<int>(options.rootRank)));
  return run({Kind::kReduce, OpType::REDUCE, "gear_mpi:reduce"}, std::move(schedules),
             std::move(tensors), {options.timeout, options.asyncOp});
}

Backend::WorkPointer Backend::barrier(const ::c10d::BarrierOptions& options) {
  std::vector<Schedule> schedules;
  schedules.push_back(gear::c10d::barrier(place_));
  return run({Kind::kBarrier, OpType::BARRIER, "gear_mpi:barrier"}, std::move(schedules), {},
             {options.timeout, options.asyncOp});
}

void Backend::monitoredBarrier(const ::c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  std::vector<Schedule> schedules;
  schedules.push_back(monitored_barrier(place_));
  run({Kind::kMonitoredBarrier, OpType::BARRIER, "gear_mpi:monitored_barrier"},
      std::move(schedules), {}, {options.timeout, false})
      ->wait(kNoTimeout);
}

// ---- gathering and scattering ----

Schedule Backend::gathering(const List& outputs, const at::Tensor& tensor, Tensors& tensors) {
  check_each_rank(outputs.size(), "all_gather");
  const Block own = input(tensor, tensors);
  std::vector<Block> from;
  for (const at::Tensor& one : outputs) {
    from.push_back(output(one, tensors));
  }
  TORCH_CHECK_VALUE(from[static_cast<size_t>(rank_)].length == own.length,
                    "[mpi] all_gather: rank ", rank_, " gives ", own.length,
                    " bytes and takes its own as ", from[static_cast<size_t>(rank_)].length);
  tensors.results.insert(tensors.results.end(), outputs.begin(), outputs.end());
  return exchange(place_, std::vector<Block>(static_cast<size_t>(size_), own), from);
}

Schedule Backend::gathering_flat(const at::Tensor& to, const at::Tensor& from, Tensors& tensors) {
  const Block own = input(from, tensors);
  const Block all = output(to, tensors);
  TORCH_CHECK_VALUE(all.length == own.length * static_cast<uint64_t>(size_),
                    "[mpi] all_gather_into_tensor: the output has ", to.numel(), " elements of ",
                    to.scalar_type(), ", and ", size_, " ranks give ", from.numel(), " of ",
                    from.scalar_type(), " each");
  std::vector<Block> blocks;
  for (uint64_t i = 0; i < static_cast<uint64_t>(size_); ++i) {
    blocks.push_back({all.bytes + i * own.length, own.length});
  }
  tensors.results.push_back(to);
  return exchange(place_, std::vector<Block>(static_cast<size_t>(size_), own), blocks);
}

Backend::WorkPointer Backend::allgather(Lists& outputs, List& inputs,
                                        const ::c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == 1, "[mpi] all_gather: ", outputs.size(),
                    " lists of outputs were given: one is allowed");
  Tensors tensors;
  std::vector<Schedule> schedules;
  schedules.push_back(gathering(outputs.front(), only(inputs), tensors));
  return run(kAllGatherName, std::move(schedules), std::move(tensors),
             {options.timeout, options.asyncOp});
}

Backend::WorkPointer Backend::_allgather_base(at::Tensor& to, at::Tensor& from,
                                              const ::c10d::AllgatherOptions& options) {
  Tensors tensors;
  std::vector<Schedule> schedules;
  schedules.push_back(gathering_flat(to, from, tensors));
  return run(kAllGatherName, std::move(schedules), std::move(tensors),
             {options.timeout, options.asyncOp});
}

// `outputs` by rank, then by tensor.
Backend::WorkPointer Backend::allgather_coalesced(Lists& outputs, List& inputs,
                                                  const ::c10d::AllgatherOptions& options) {
  check_each_rank(outputs.size(), "all_gather_coalesced");
  Tensors tensors;
  std::vector<Schedule> schedules;
  for (size_t i = 0; i < inputs.size(); ++i) {
    List each;
    for (const List& of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size(),
                        "[mpi] all_gather_coalesced: ", inputs.size(), " inputs and ",
                        of_rank.size(), " outputs of a rank");
      each.push_back(of_rank[i]);
    }
    schedules.push_back(gathering(each, inputs[i], tensors));
  }
  return run(kAllGatherName, std::move(schedules), std::move(tensors),
             {options.timeout, options.asyncOp});
}

Backend::WorkPointer Backend::allgather_into_tensor_coalesced(
    List& outputs, List& inputs, const ::c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(),
                    "[mpi] all_gather_into_tensor: ", inputs.size(), " inputs and ", outputs.size(),
                    " outputs");
  Tensors tensors;
  std::vector<Schedule> schedules;
  for (size_t i = 0; i < inputs.size(); ++i) {
    schedules.push_back(gathering_flat(outputs[i], inputs[i], tensors));
  }
  return run(kAllGatherName, std::move(schedules), std::move(tensors),
             {options.timeout, options.asyncOp});
}

Backend::WorkPointer Backend::gather(Lists& outputs, List& inputs,
                                     const ::c10d::GatherOptions& options) {
  check_root(options.rootRank);
  Tensors tensors;
  std::vector<Block> to(static_cast<size_t>(size_));
  std::vector<Block> from(static_cast<size_t>(size_));
  to[static_cast<size_t>(options.rootRank)] = input(only(inputs), tensors);
  if (rank_ == options.rootRank) {
    TORCH_CHECK_VALUE(outputs.size() == 1, "[mpi] gather: ", outputs.size(),
                      " lists of outputs were given: the rank that gathers gives one");
    check_each_rank(outputs.front().size(), "gather");
    for (size_t i = 0; i < from.size(); ++i) {
      from[i] = output(outputs.front()[i], tensors);
    }
    tensors.results = outputs.front();
    TORCH_CHECK_VALUE(
        from[static_cast<size_t>(rank_)].length == to[static_cast<size_t>(rank_)].length,
        "[mpi] gather: the rank's own output has another size than its input");
  }
  std::vector<Schedule> schedules;
  schedules.push_back(exchange(place_, to, from));
  return run({Kind::kGather, OpType::GATHER, "gear_mpi:gather"}, std::move(schedules),
             std::move(tensors), {options.timeout, options.asyncOp});
}

Backend::WorkPointer Backend::scatter(List& outputs, Lists& inputs,
                                      const ::c10d::ScatterOptions& options) {
  check_root(options.rootRank);
  Tensors tensors;
  std::vector<Block> to(static_cast<size_t>(size_));
  std::vector<Block> from(static_cast<size_t>(size_));
  from[static_cast<size_t>(options.rootRank)] = output(only(outputs), tensors);
  tensors.results = outputs;
  if (rank_ == options.rootRank) {
    TORCH_CHECK_VALUE(inputs.size() == 1, "[mpi] scatter: ", inputs.size(),
                      " lists of inputs were given: the rank that scatters gives one");
    check_each_rank(inputs.front().size(), "scatter");
    for (size_t i = 0; i < to.size(); ++i) {
      to[i] = input(inputs.front()[i], tensors);
    }
    TORCH_CHECK_VALUE(
        from[static_cast<size_t>(rank_)].length == to[static_cast<size_t>(rank_)].length,
        "[mpi] scatter: the rank's own output has another size than its input");
  }
  std::vector<Schedule> schedules;
  schedules.push_back(exchange(place_, to, from));
  return run({Kind::kScatter, OpType::SCATTER, "gear_mpi:scatter"}, std::move(schedules),
             std::move(tensors), {options.timeout, options.asyncOp});
}

// ---- reducing and scattering ----

Schedule Backend::scattering_sum(const at::Tensor& to, const List& inputs,
                                 const ::c10d::ReduceOp& op, Tensors& tensors) {
  check_each_rank(inputs.size(), "reduce_scatter");
  const Arithmetic arithmetic = arithmetic_of(to, op);
  std::vector<Block> from;
  for (const at::Tensor& one : inputs) {
    TORCH_CHECK_VALUE(one.scalar_type() == to.scalar_type(), "[mpi] reduce_scatter: inputs of ",
                      one.scalar_type(), " and an output of ", to.scalar_type());
    if (scales(op)) {
      at::Tensor scaled = one.clone(at::MemoryFormat::Contiguous);
      scale(scaled, op);
      from.push_back(input(scaled, tensors));
    } else {
      from.push_back(input(one, tensors));
    }
  }
  const Block own = output(to, tensors);
  TORCH_CHECK_VALUE(from[static_cast<size_t>(rank_)].length == own.length,
                    "[mpi] reduce_scatter: the output has ", to.numel(),
                    " elements, and the input for this rank ",
                    inputs[static_cast<size_t>(rank_)].numel());
  tensors.results.push_back(to);
  return gear::c10d::reduce_scatter(place_, arithmetic, from, own);
}

Schedule Backend::scattering_sum_flat(const at::Tensor& to, const at::Tensor& from,
                                      const ::c10d::ReduceOp& op, Tensors& tensors) {
  TORCH_CHECK_VALUE(from.numel() == to.numel() * size_,
                    "[mpi] reduce_scatter_tensor: the input has ", from.numel(), " elements, and ",
                    size_, " ranks take ", to.numel(), " each");
  List parts;
  const at::Tensor flat = from.reshape({size_, to.numel()});
  for (int64_t i = 0; i < size_; ++i) {
    parts.push_back(flat.select(0, i));
  }
  return scattering_sum(to, parts, op, tensors);
}

Backend::WorkPointer Backend::reduce_scatter(List& outputs, Lists& inputs,
                                             const ::c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(inputs.size() == 1, "[mpi] reduce_scatter: ", inputs.size(),
                    " lists of inputs were given: one is allowed");
  Tensors tensors;
  std::vector<Schedule> schedules;
  schedules.push_back(scattering_sum(only(outputs), inputs.front(), options.reduceOp, tensors));
  return run(kReduceScatterName, std::move(schedules), std::move(tensors),
             {options.timeout, options.asyncOp});
}

Backend::WorkPointer Backend::_reduce_scatter_base(at::Tensor& to, at::Tensor& from,
                                                   const ::c10d::ReduceScatterOptions& options) {
  Tensors tensors;
  std::vector<Schedule> schedules;
  schedules.push_back(scattering_sum_flat(to, from, options.reduceOp, tensors));
  return run(kReduceScatterName, std::move(schedules), std::move(tensors),
             {options.timeout, options.asyncOp});
}

Backend::WorkPointer Backend::reduce_scatter_tensor_coalesced(
    List& outputs, List& inputs, const ::c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "[mpi] reduce_scatter_tensor: ", inputs.size(),
                    " inputs and ", outputs.size(), " outputs");
  Tensors tensors;
  std::vector<Schedule> schedules;
  for (size_t i = 0; i < inputs.size(); ++i) {
    schedules.push_back(scattering_sum_flat(outputs[i], inputs[i], options.reduceOp, tensors));
  }
  return run(kReduceScatterName, std::move(schedules), std::move(tensors),
             {options.timeout, options.asyncOp});
}

// ---- all to all ----

namespace {

// The blocks of `splits` rows each; without splits, equal ones.
std::vector<Block> rows_of(const at::Tensor& tensor, Block bytes,
                           const std::vector<int64_t>& splits, int size, const char* what) {
  const auto ranks = static_cast<uint64_t>(size);
  std::vector<Block> blocks;
  const int64_t num_rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(num_rows % size == 0, "[mpi] all_to_all_single: the ", what, " has ",
                      num_rows, " rows, which ", size,
                      " ranks do not divide: give split sizes, or another number of rows");
    for (uint64_t i = 0; i < ranks; ++i) {
      blocks.push_back({bytes.bytes + i * (bytes.length / ranks), bytes.length / ranks});
    }
    return blocks;
  }
  TORCH_CHECK_VALUE(splits.size() == ranks, "[mpi] all_to_all_single: ", splits.size(),
                    " split sizes of the ", what, " were given, and the group has ", size,
                    " ranks");
  const uint64_t row_bytes = num_rows == 0 ? 0 : bytes.length / static_cast<uint64_t>(num_rows);
  uint64_t begin = 0;
  int64_t sum = 0;
  for (const int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "[mpi] all_to_all_single: a split of ", split, " rows");
    const uint64_t length = static_cast<uint64_t>(split) * row_bytes;
    blocks.push_back({bytes.bytes + begin, length});
    begin += length;
    sum += split;
  }
  TORCH_CHECK_VALUE(sum == num_rows, "[mpi] all_to_all_single: the split sizes of the ", what,
                    " make ", sum, " rows, and it has ", num_rows);
  return blocks;
}

}  // namespace

Backend::WorkPointer Backend::alltoall_base(at::Tensor& to, at::Tensor& from,
                                            std::vector<int64_t>& output_splits,
                                            std::vector<int64_t>& input_splits,
                                            const ::c10d::AllToAllOptions& options) {
  Tensors tensors;
  const Block sent = input(from, tensors);
  const Block received = output(to, tensors);
  tensors.results = {to};
  const auto blocks_to = rows_of(from, sent, input_splits, size_, "input");
  const auto blocks_from = rows_of(to, received, output_splits, size_, "output");
  TORCH_CHECK_VALUE(blocks_to[static_cast<size_t>(rank_)].length ==
                        blocks_from[static_cast<size_t>(rank_)].length,
                    "[mpi] all_to_all_single: what rank ", rank_,
                    " gives itself has another size than what it takes of itself");
  std::vector<Schedule> schedules;
  schedules.push_back(exchange(place_, blocks_to, blocks_from));
  return run({Kind::kAllToAll, OpType::ALLTOALL_BASE, "gear_mpi:all_to_all"}, std::move(schedules),
             std::move(tensors), {options.timeout, options.asyncOp});
}

Backend::WorkPointer Backend::alltoall(List& outputs, List& inputs,
                                       const ::c10d::AllToAllOptions& options) {
  check_each_rank(outputs.size(), "all_to_all");
  check_each_rank(inputs.size(), "all_to_all");
  Tensors tensors;
  tensors.results = outputs;
  std::vector<Block> to;
  std::vector<Block> from;
  for (size_t i = 0; i < inputs.size(); ++i) {
    to.push_back(input(inputs[i], tensors));
    from.push_back(output(outputs[i], tensors));
  }
  TORCH_CHECK_VALUE(
      to[static_cast<size_t>(rank_)].length == from[static_cast<size_t>(rank_)].length,
      "[mpi] all_to_all: what rank ", rank_,
      " gives itself has another size than what it takes of itself");
  std::vector<Schedule> schedules;
  schedules.push_back(exchange(place_, to, from));
  return run({Kind::kAllToAll, OpType::ALLTOALL, "gear_mpi:all_to_all"}, std::move(schedules),
             std::move(tensors), {options.timeout, options.asyncOp});
}

// ---- messages ----

Backend::WorkPointer Backend::send(List& tensors, int target, int tag) {
  check_root(target);
  return run_message({Kind::kSend, OpType::SEND, "gear_mpi:send"}, only(tensors), target, tag);
}

Backend::WorkPointer Backend::recv(List& tensors, int source, int tag) {
  check_root(source);
  return run_message({Kind::kReceive, OpType::RECV, "gear_mpi:recv"}, only(tensors), source, tag);
}

Backend::WorkPointer Backend::recvAnysource(List& tensors, int tag) {
  return run_message({Kind::kReceive, OpType::RECVANYSOURCE, "gear_mpi:recv"}, only(tensors),
                     MPI_ANY_SOURCE, tag);
}

}  // namespace gear::c10d
