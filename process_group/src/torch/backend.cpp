#include "torch/backend.h"

#include <c10/util/Exception.h>

#include <utility>

#include "base/errors.h"
#include "engine/log.h"

namespace gear::process_group {

using ::c10d::OpType;

const Backend::Name Backend::kBroadcast{Kind::kBroadcast, OpType::BROADCAST, "gear_mpi:broadcast"};
const Backend::Name Backend::kAllReduce{Kind::kAllReduce, OpType::ALLREDUCE, "gear_mpi:all_reduce"};
const Backend::Name Backend::kReduce{Kind::kReduce, OpType::REDUCE, "gear_mpi:reduce"};
const Backend::Name Backend::kAllGather{Kind::kAllGather, OpType::ALLGATHER, "gear_mpi:all_gather"};
const Backend::Name Backend::kGather{Kind::kGather, OpType::GATHER, "gear_mpi:gather"};
const Backend::Name Backend::kScatter{Kind::kScatter, OpType::SCATTER, "gear_mpi:scatter"};
const Backend::Name Backend::kReduceScatter{Kind::kReduceScatter, OpType::REDUCE_SCATTER,
                                            "gear_mpi:reduce_scatter"};
const Backend::Name Backend::kAllToAll{Kind::kAllToAll, OpType::ALLTOALL, "gear_mpi:all_to_all"};
const Backend::Name Backend::kAllToAllRows{Kind::kAllToAll, OpType::ALLTOALL_BASE,
                                           "gear_mpi:all_to_all"};
const Backend::Name Backend::kBarrier{Kind::kBarrier, OpType::BARRIER, "gear_mpi:barrier"};
const Backend::Name Backend::kMonitoredBarrier{Kind::kMonitoredBarrier, OpType::BARRIER,
                                               "gear_mpi:monitored_barrier"};
const Backend::Name Backend::kSend{Kind::kSend, OpType::SEND, "gear_mpi:send"};
const Backend::Name Backend::kReceive{Kind::kReceive, OpType::RECV, "gear_mpi:recv"};
const Backend::Name Backend::kReceiveAny{Kind::kReceive, OpType::RECVANYSOURCE, "gear_mpi:recv"};

Backend::Backend(std::shared_ptr<Carrier> carrier, c10::intrusive_ptr<Options> options)
    : ::c10d::Backend(carrier->place().rank, carrier->place().size),
      options_(std::move(options)),
      carrier_(std::move(carrier)),
      devices_(options_->takes_gpus ? &gpus() : &host_alone()),
      gloo_(carrier_->ring()) {
  share_memory(options_->takes_gpus && options_->shares_memory && at::hasCUDA());
  init();
}

void Backend::share_memory(bool wanted) {
  if (auto memory = carrier_->share_memory(wanted, timeout_s(::c10d::kUnsetTimeout))) {
    node_ = std::make_shared<NodeStage>(std::move(memory));
  }
}

void Backend::set_devices(const Devices& devices, bool shares_memory) {
  devices_ = &devices;
  share_memory(shares_memory);
}

Backend::~Backend() {
  if (Log* const log = Log::current()) {
    log->flush();
  }
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  gloo_.set_timeout(timeout);
}

uint64_t Backend::getSequenceNumberForGroup() { return carrier_->ring()->group.calls_begun(); }

double Backend::timeout_s(std::chrono::milliseconds asked) const {
  return std::chrono::duration<double>(asked == ::c10d::kUnsetTimeout ? options_->timeout : asked)
      .count();
}

std::optional<Entry> Backend::entry_of(const Name& name, const Cargo& cargo,
                                       const char* route) const {
  if (Log::current() == nullptr) {
    return std::nullopt;
  }
  return Entry{.begin = std::chrono::steady_clock::now(),
               .end = {},
               .bytes = cargo.bytes,
               .operation = kind_name(name.kind).data(),
               .dtype = cargo.dtype(),
               .route = route,
               .group = &carrier_->ring()->name,
               .group_size = size_,
               .number = -1,
               .failed = false};
}

c10::intrusive_ptr<Work> Backend::work_of(const Name& name, const Cargo& cargo, Tensors tensors,
                                          const char* route) const {
  auto work = c10::make_intrusive<Work>(rank_, name.type, name.title, std::move(tensors));
  work->log_as(entry_of(name, cargo, route));
  return work;
}

template <class ByGloo, class ByMpi>
Backend::WorkPointer Backend::run(const Name& name, const Cargo& cargo, const Terms& terms,
                                  const ByGloo& by_gloo, const ByMpi& by_mpi) {
  if (gloo_.carries(name.kind, cargo.bytes)) {
    return run_by_gloo(name, cargo, terms, by_gloo, by_mpi);
  }
  return run_by_mpi(name, cargo, terms, by_mpi(operations()));
}

template <class ByGloo, class ByMpi>
Backend::WorkPointer Backend::run_by_gloo(const Name& name, const Cargo& cargo, const Terms& terms,
                                          const ByGloo& by_gloo, const ByMpi& by_mpi) {
  Gloo::check(name.kind, cargo, terms.reduction);
  // What ranks compare is what they give by MPI; that no other tensors are taken has been checked.
  const Operation given =
      by_mpi(Operations(carrier_->place(), Compression::kNone, host_alone(), false));
  Signature signature = together(given.signatures);
  signature.way = Way::kGloo;
  if (name.kind == Kind::kGather || name.kind == Kind::kScatter) {  // alike, as gloo has it
    signature.count = static_cast<int64_t>(cargo.bytes / c10::elementSize(*cargo.type));
  }
  auto work = gloo_.run(name.type, signature, cargo, entry_of(name, cargo, "gloo"),
                        timeout_s(terms.timeout), !terms.async, by_gloo());
  if (!terms.async) {
    work->synchronize();
  }
  return work;
}

Backend::WorkPointer Backend::run_by_mpi(const Name& name, const Cargo& cargo, const Terms& terms,
                                         Operation operation) {
  if (const auto& stage = operation.tensors.stage) {
    stage->begin(operation.schedules, options_->segment_bytes);
    for (Schedule& schedule : operation.schedules) {
      schedule.staging = stage;
    }
  }
  const std::shared_ptr<Stage> by_stage = operation.tensors.stage;
  auto work =
      work_of(name, cargo, std::move(operation.tensors), operation.sums.empty() ? "mpi" : "shared");
  std::vector<std::function<std::shared_ptr<Call>()>> makes;
  makes.reserve(operation.schedules.size() + operation.sums.size());
  const double wait_s = timeout_s(terms.timeout);
  std::vector<Signature>& signatures = operation.signatures;
  GEAR_CHECK(signatures.size() == operation.sums.size() + operation.schedules.size());
  for (size_t i = 0; i < signatures.size(); ++i) {
    signatures[i].part = static_cast<uint32_t>(i);
    signatures[i].parts = static_cast<uint32_t>(signatures.size());
  }
  for (const Operation::Sum& sum : operation.sums) {
    const Signature& signature = signatures[makes.size()];
    makes.emplace_back([this, &sum, &signature, &by_stage, wait_s] {
      return std::make_shared<NodeSum>(carrier_->ring(), signature, node_, by_stage, sum.dense,
                                       sum.arithmetic, wait_s);
    });
  }
  for (Schedule& schedule : operation.schedules) {
    const Signature& signature = signatures[makes.size()];
    makes.emplace_back([this, &signature, &schedule, wait_s] {
      return carrier_->begin(signature, std::move(schedule), wait_s);
    });
  }
  try {
    work->begin(makes, !terms.async);
  } catch (const base::TransportError& error) {
    C10_THROW_ERROR(DistBackendError, error.what());
  }
  if (!terms.async) {
    work->synchronize();  // the caller will, but may wait for Python's lock first
  }
  return work;
}

Backend::WorkPointer Backend::run_message(const Name& name, const at::Tensor& tensor, int peer,
                                          int tag) {
  const int highest = carrier_->ring()->wire->highest_tag();
  TORCH_CHECK_VALUE(tag >= 0 && tag <= highest, "[mpi] tag ", tag, ": 0 to ", highest,
                    " is allowed with this MPI");
  Tensors tensors{.devices = devices_};
  const Block bytes = name.kind == Kind::kSend ? input(tensor, tensors) : output(tensor, tensors);
  if (name.kind == Kind::kReceive) {
    tensors.results = {tensor};
  }
  const std::shared_ptr<Stage> stage = tensors.stage;
  if (stage) {
    stage->begin({}, options_->segment_bytes);
  }
  auto work = work_of(name, cargo_of({tensor}), std::move(tensors), "mpi");
  const auto make = [&] {
    return carrier_->begin({name.kind, bytes, peer, tag, stage}, timeout_s(::c10d::kUnsetTimeout));
  };
  try {
    work->begin({make}, false);
  } catch (const base::TransportError& error) {
    C10_THROW_ERROR(DistBackendError, error.what());
  }
  return work;
}

// ---- to all ----

Backend::WorkPointer Backend::broadcast(List& list, const ::c10d::BroadcastOptions& options) {
  return run(
      kBroadcast, cargo_of(list), {options.timeout, options.asyncOp},
      [&] { return [=](::c10d::Backend& gloo) mutable { return gloo.broadcast(list, options); }; },
      [&](const Operations& by_mpi) { return by_mpi.broadcast(only(list), options.rootRank); });
}

Backend::WorkPointer Backend::allreduce(List& list, const ::c10d::AllreduceOptions& options) {
  const bool is_sparse = only(list).layout() != at::kStrided;
  return run(
      kAllReduce, is_sparse ? cargo_of(list.front()) : cargo_of(list),
      {options.timeout, options.asyncOp, &options.reduceOp},
      [&] { return [=](::c10d::Backend& gloo) mutable { return gloo.allreduce(list, options); }; },
      [&](const Operations& by_mpi) {
        return is_sparse ? by_mpi.all_reduce_sparse(list.front(), options.reduceOp)
                         : by_mpi.all_reduce(list, options.reduceOp);
      });
}

Backend::WorkPointer Backend::allreduce_coalesced(
    List& list, const ::c10d::AllreduceCoalescedOptions& options) {
  return run(
      kAllReduce, cargo_of(list), {options.timeout, options.asyncOp, &options.reduceOp},
      [&] {
        return
            [=](::c10d::Backend& gloo) mutable { return gloo.allreduce_coalesced(list, options); };
      },
      [&](const Operations& by_mpi) { return by_mpi.all_reduce(list, options.reduceOp); });
}

Backend::WorkPointer Backend::reduce(List& list, const ::c10d::ReduceOptions& options) {
  return run(
      kReduce, cargo_of(list), {options.timeout, options.asyncOp, &options.reduceOp},
      [&] { return [=](::c10d::Backend& gloo) mutable { return gloo.reduce(list, options); }; },
      [&](const Operations& by_mpi) {
        return by_mpi.reduce(only(list), options.reduceOp, options.rootRank);
      });
}

Backend::WorkPointer Backend::barrier(const ::c10d::BarrierOptions& options) {
  return run(
      kBarrier, {}, {options.timeout, options.asyncOp},
      [&] { return [=](::c10d::Backend& gloo) mutable { return gloo.barrier(options); }; },
      [&](const Operations& by_mpi) { return by_mpi.barrier(); });
}

void Backend::monitoredBarrier(const ::c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  run_by_mpi(kMonitoredBarrier, {}, {options.timeout, false}, operations().monitored_barrier())
      ->wait(kNoTimeout);
}

// ---- gathering and scattering ----

Backend::WorkPointer Backend::allgather(Lists& outputs, List& inputs,
                                        const ::c10d::AllgatherOptions& options) {
  only(inputs);
  TORCH_CHECK_VALUE(outputs.size() == 1, "[mpi] all_gather: ", outputs.size(),
                    " lists of outputs were given: one is allowed");
  return run(
      kAllGather, cargo_of(outputs), {options.timeout, options.asyncOp},
      [&] {
        return
            [=](::c10d::Backend& gloo) mutable { return gloo.allgather(outputs, inputs, options); };
      },
      [&](const Operations& by_mpi) { return by_mpi.all_gather(outputs, inputs); });
}

Backend::WorkPointer Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                              const ::c10d::AllgatherOptions& options) {
  return run(
      kAllGather, cargo_of({output}), {options.timeout, options.asyncOp},
      [&] {
        return [=](::c10d::Backend& gloo) mutable {
          return gloo._allgather_base(output, input, options);
        };
      },
      [&](const Operations& by_mpi) { return by_mpi.all_gather_flat({output}, {input}); });
}

// `outputs` by rank, then by tensor.
Backend::WorkPointer Backend::allgather_coalesced(Lists& outputs, List& inputs,
                                                  const ::c10d::AllgatherOptions& options) {
  Lists by_tensor(inputs.size());
  for (const List& of_rank : outputs) {
    TORCH_CHECK_VALUE(of_rank.size() == inputs.size(),
                      "[mpi] all_gather_coalesced: ", inputs.size(), " inputs and ", of_rank.size(),
                      " outputs of a rank");
    for (size_t i = 0; i < inputs.size(); ++i) {
      by_tensor[i].push_back(of_rank[i]);
    }
  }
  return run(
      kAllGather, cargo_of(outputs), {options.timeout, options.asyncOp},
      [&] {
        return [=](::c10d::Backend& gloo) mutable {
          return gloo.allgather_coalesced(outputs, inputs, options);
        };
      },
      [&](const Operations& by_mpi) { return by_mpi.all_gather(by_tensor, inputs); });
}

Backend::WorkPointer Backend::allgather_into_tensor_coalesced(
    List& outputs, List& inputs, const ::c10d::AllgatherOptions& options) {
  return run(
      kAllGather, cargo_of(outputs), {options.timeout, options.asyncOp},
      [&] {
        return [=](::c10d::Backend& gloo) mutable {
          return gloo.allgather_into_tensor_coalesced(outputs, inputs, options);
        };
      },
      [&](const Operations& by_mpi) { return by_mpi.all_gather_flat(outputs, inputs); });
}

Backend::WorkPointer Backend::gather(Lists& outputs, List& inputs,
                                     const ::c10d::GatherOptions& options) {
  return run(
      kGather, cargo_of(inputs), {options.timeout, options.asyncOp},
      [&] {
        return [=](::c10d::Backend& gloo) mutable { return gloo.gather(outputs, inputs, options); };
      },
      [&](const Operations& by_mpi) {
        return by_mpi.gather(outputs, only(inputs), options.rootRank);
      });
}

Backend::WorkPointer Backend::scatter(List& outputs, Lists& inputs,
                                      const ::c10d::ScatterOptions& options) {
  return run(
      kScatter, cargo_of(outputs), {options.timeout, options.asyncOp},
      [&] {
        return
            [=](::c10d::Backend& gloo) mutable { return gloo.scatter(outputs, inputs, options); };
      },
      [&](const Operations& by_mpi) {
        return by_mpi.scatter(only(outputs), inputs, options.rootRank);
      });
}

// ---- reducing and scattering ----

Backend::WorkPointer Backend::reduce_scatter(List& outputs, Lists& inputs,
                                             const ::c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(inputs.size() == 1, "[mpi] reduce_scatter: ", inputs.size(),
                    " lists of inputs were given: one is allowed");
  return run(
      kReduceScatter, cargo_of(inputs), {options.timeout, options.asyncOp, &options.reduceOp},
      [&] {
        return [=](::c10d::Backend& gloo) mutable {
          return gloo.reduce_scatter(outputs, inputs, options);
        };
      },
      [&](const Operations& by_mpi) {
        return by_mpi.reduce_scatter(only(outputs), inputs.front(), options.reduceOp);
      });
}

Backend::WorkPointer Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                   const ::c10d::ReduceScatterOptions& options) {
  return run(
      kReduceScatter, cargo_of({input}), {options.timeout, options.asyncOp, &options.reduceOp},
      [&] {
        return [=](::c10d::Backend& gloo) mutable {
          return gloo._reduce_scatter_base(output, input, options);
        };
      },
      [&](const Operations& by_mpi) {
        return by_mpi.reduce_scatter_flat({output}, {input}, options.reduceOp);
      });
}

Backend::WorkPointer Backend::reduce_scatter_tensor_coalesced(
    List& outputs, List& inputs, const ::c10d::ReduceScatterOptions& options) {
  return run(
      kReduceScatter, cargo_of(inputs), {options.timeout, options.asyncOp, &options.reduceOp},
      [&] {
        return [=](::c10d::Backend& gloo) mutable {
          return gloo.reduce_scatter_tensor_coalesced(outputs, inputs, options);
        };
      },
      [&](const Operations& by_mpi) {
        return by_mpi.reduce_scatter_flat(outputs, inputs, options.reduceOp);
      });
}

// ---- all to all ----

Backend::WorkPointer Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                            std::vector<int64_t>& output_splits,
                                            std::vector<int64_t>& input_splits,
                                            const ::c10d::AllToAllOptions& options) {
  return run(
      kAllToAllRows, cargo_of({input}), {options.timeout, options.asyncOp},
      [&] {
        return [=](::c10d::Backend& gloo) mutable {
          return gloo.alltoall_base(output, input, output_splits, input_splits, options);
        };
      },
      [&](const Operations& by_mpi) {
        return by_mpi.all_to_all_rows(output, input, output_splits, input_splits);
      });
}

Backend::WorkPointer Backend::alltoall(List& outputs, List& inputs,
                                       const ::c10d::AllToAllOptions& options) {
  return run(
      kAllToAll, cargo_of(inputs), {options.timeout, options.asyncOp},
      [&] {
        return
            [=](::c10d::Backend& gloo) mutable { return gloo.alltoall(outputs, inputs, options); };
      },
      [&](const Operations& by_mpi) { return by_mpi.all_to_all(outputs, inputs); });
}

// ---- messages ----

void Backend::check_peer(int rank) const {
  TORCH_CHECK_VALUE(rank >= 0 && rank < size_, "[mpi] rank ", rank, " is not in the group: 0 to ",
                    size_ - 1, " is allowed");
}

Backend::WorkPointer Backend::send(List& tensors, int target, int tag) {
  check_peer(target);
  return run_message(kSend, only(tensors), target, tag);
}

Backend::WorkPointer Backend::recv(List& tensors, int source, int tag) {
  check_peer(source);
  return run_message(kReceive, only(tensors), source, tag);
}

Backend::WorkPointer Backend::recvAnysource(List& tensors, int tag) {
  return run_message(kReceiveAny, only(tensors), Wire::kAnyone, tag);
}

}  // namespace gear::process_group
