#include "emu_torch/emulated_group.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <any>
#include <bit>
#include <optional>
#include <utility>

#include "emu_torch/held_message.h"
#include "emu_torch/stream_work.h"

namespace gear::emu {

using ::c10d::OpType;

const EmulatedGroup::Name EmulatedGroup::kBroadcast{"broadcast", OpType::BROADCAST,
                                                    "gear_emu:broadcast"};
const EmulatedGroup::Name EmulatedGroup::kAllReduce{"all_reduce", OpType::ALLREDUCE,
                                                    "gear_emu:all_reduce"};
const EmulatedGroup::Name EmulatedGroup::kReduce{"reduce", OpType::REDUCE, "gear_emu:reduce"};
const EmulatedGroup::Name EmulatedGroup::kAllGather{"all_gather", OpType::ALLGATHER,
                                                    "gear_emu:all_gather"};
const EmulatedGroup::Name EmulatedGroup::kGather{"gather", OpType::GATHER, "gear_emu:gather"};
const EmulatedGroup::Name EmulatedGroup::kScatter{"scatter", OpType::SCATTER, "gear_emu:scatter"};
const EmulatedGroup::Name EmulatedGroup::kReduceScatter{"reduce_scatter", OpType::REDUCE_SCATTER,
                                                        "gear_emu:reduce_scatter"};
const EmulatedGroup::Name EmulatedGroup::kAllToAll{"all_to_all", OpType::ALLTOALL,
                                                   "gear_emu:all_to_all"};
const EmulatedGroup::Name EmulatedGroup::kAllToAllRows{"all_to_all", OpType::ALLTOALL_BASE,
                                                       "gear_emu:all_to_all"};
const EmulatedGroup::Name EmulatedGroup::kBarrier{"barrier", OpType::BARRIER, "gear_emu:barrier"};
const EmulatedGroup::Name EmulatedGroup::kSend{"send", OpType::SEND, "gear_emu:send"};
const EmulatedGroup::Name EmulatedGroup::kReceive{"send", OpType::RECV, "gear_emu:recv"};
const EmulatedGroup::Name EmulatedGroup::kReceiveAny{"send", OpType::RECVANYSOURCE,
                                                     "gear_emu:recv"};

namespace {

uint64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
}

uint64_t bytes_of(const EmulatedGroup::List& tensors) {
  uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    bytes += bytes_of(tensor);
  }
  return bytes;
}

uint64_t bytes_of(const EmulatedGroup::Lists& lists) {
  uint64_t bytes = 0;
  for (const EmulatedGroup::List& list : lists) {
    bytes += bytes_of(list);
  }
  return bytes;
}

EmulatedGroup::List joined(const EmulatedGroup::Lists& lists) {
  EmulatedGroup::List all;
  for (const EmulatedGroup::List& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

}  // namespace

EmulatedGroup::Asked EmulatedGroup::asked(const at::Tensor& of, const auto& options) {
  Asked found{.device = of.device(), .timeout = options.timeout};
  if constexpr (requires { options.asyncOp; }) {
    found.is_async = options.asyncOp;
  }
  return found;
}

EmulatedGroup::Asked EmulatedGroup::asked(const List& of, const auto& options) {
  TORCH_CHECK_VALUE(!of.empty(), "[emu] no tensor was given: one at least is allowed");
  return asked(of.front(), options);
}

EmulatedGroup::EmulatedGroup(Members members, std::vector<int> world_ranks, Values::Inner on_host,
                             Plan plan, OnGpus on_gpus, Split split,
                             c10::intrusive_ptr<Options> options)
    : ::c10d::Backend(members.own(), members.size()),
      options_(std::move(options)),
      world_ranks_(std::move(world_ranks)),
      values_(std::move(members), std::move(on_host)),
      timing_(std::make_shared<Timing>(std::move(plan))),
      split_(std::move(split)),
      on_gpus_(std::move(on_gpus)) {
  if (!values_.is_alone()) {
    queue_ = std::make_unique<Queue>();
  }
  init();
}

EmulatedGroup::~EmulatedGroup() {
  std::optional<pybind11::gil_scoped_release> released;
  // Also while Python ends, and not after that.
  if (PyGILState_Check() != 0 && PyGILState_GetThisThreadState() != nullptr) {
    released.emplace();  // threads that are waited for may be about to ask for it
  }
  queue_.reset();
  values_.leave();
}

void EmulatedGroup::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  values_.set_timeout(timeout);
}

std::chrono::milliseconds EmulatedGroup::time_of(std::chrono::milliseconds asked) const {
  return asked == ::c10d::kUnsetTimeout ? options_->timeout : asked;
}

std::string EmulatedGroup::shown(int member) const {
  const int world_rank = world_ranks_[static_cast<size_t>(member)];
  return world_rank == member ? c10::str(member)
                              : c10::str(member, " (", world_rank, " of the world)");
}

c10::intrusive_ptr<HeldWork> EmulatedGroup::work_of(const Name& name, Time began,
                                                    List results) const {
  return c10::make_intrusive<HeldWork>(rank_, name.type, name.title, name.operation, began,
                                       std::move(results));
}

void EmulatedGroup::never(HeldWork& work, const Name& name, int64_t why,
                          std::chrono::milliseconds timeout) const {
  const double wait_s = std::chrono::duration<double>(time_of(timeout)).count();
  work.fail_with(Timing::pause(wait_s),
                 c10::str("[emu] ", name.operation, " has not ended within ", wait_s,
                          " s: ", Timing::never_words(why), ", as an event of the job says"));
}

Footprint EmulatedGroup::footprint(const char* operation, uint64_t bytes) const {
  const auto found = on_gpus_.footprints.find(operation);
  return found == on_gpus_.footprints.end() ? Footprint() : footprint_of(found->second, bytes);
}

// The time counts from the beginning of its own part, which nobody has to tell: where other real
// members come later, that part lasts until they have, and what comes behind waits for them again.
EmulatedGroup::WorkPointer EmulatedGroup::run_on_gpu(const Name& name,
                                                     const Timing::Arrival& arrival, List results,
                                                     const Asked& asked, Values::Move move) {
  TORCH_CHECK_VALUE(on_gpus_.refused.empty(), "[emu] a tensor on ", asked.device,
                    " was given: ", on_gpus_.refused);
  if (arrival.never != 0) {
    auto work = work_of(name, arrival.began, std::move(results));
    never(*work, name, arrival.never, asked.timeout);
    return work;
  }
  Timing::unseen(name.operation);
  const c10::impl::VirtualGuardImpl device(asked.device.type());
  const c10::DeviceGuard on_device(asked.device);
  const c10::Stream caller = device.getStream(asked.device);
  c10::Event here(asked.device.type());
  here.record(caller);  // also gives this thread a context, without which the driver does nothing
  // These ask Python, or free what may wait for it: without the lock.
  const Gpu& gpu = Gpu::of(asked.device, caller, on_gpus_.load);
  if (!values_.is_alone()) {
    std::call_once(connected_, [this] { values_.connect_gpus(on_gpus_.connect()); });
  }
  const uint64_t graph = Gpu::graph_of(caller);
  if (graph == 0) {
    StreamWork::tidy();
  }

  const std::lock_guard guard(on_gpus_mutex_);
  const auto index = static_cast<int>(asked.device.index());
  if (!lines_.contains(index)) {
    lines_.emplace(index, Line{.stream = device.getStreamFromGlobalPool(asked.device)});
  }
  Line& line = lines_.at(index);
  const c10::Stream stream = asked.is_async ? line.stream : caller;
  if (stream != caller) {
    here.block(stream);
  }
  std::optional<Line::Last>& last = graph == 0 ? line.last : line.last_captured;
  if (last && last->stream != stream && last->graph == graph) {
    last->end->block(stream);
  }
  {
    const c10::StreamGuard on_stream(stream);
    const bool is_held = arrival.seconds > 0;
    const at::Tensor times = is_held ? gpu.times(stream) : at::Tensor();
    if (is_held) {
      gpu.mark_began(stream, times);
    }
    move(time_of(asked.timeout));
    if (is_held) {
      gpu.mark_valued(stream, times);
      gpu.hold(stream, times, arrival.seconds, timing_->links(),
               footprint(name.operation, arrival.bytes));
    }
  }
  std::any kept;
  if (stream != caller) {
    kept = std::move(move);  // and with it the tensors
  }
  auto work =
      c10::make_intrusive<StreamWork>(rank_, name.type, name.title, stream, std::move(results),
                                      std::move(kept), graph != 0, asked.blocks);
  last = Line::Last{.stream = stream, .end = work->end(), .graph = graph};
  last_gpu_ = index;
  return work;
}

EmulatedGroup::WorkPointer EmulatedGroup::run(const Name& name, uint64_t bytes, List results,
                                              const Asked& asked, Values::Move move) {
  const Timing::Arrival arrival = timing_->arrive(name.operation, bytes);
  if (!asked.device.is_cpu()) {
    return run_on_gpu(name, arrival, std::move(results), asked, std::move(move));
  }
  const std::chrono::milliseconds timeout = asked.timeout;
  auto work = work_of(name, arrival.began, std::move(results));
  if (!queue_) {
    if (arrival.never != 0) {
      never(*work, name, arrival.never, timeout);
    } else {
      move(time_of(timeout));
      work->hold(timing_->hold(arrival, arrival.time, arrival.seconds));
    }
    return work;
  }
  queue_->add([this, work, name, timeout, arrival, move = std::move(move)] {
    try {
      // The last of them counts, and what one knows: events come to each at its own time.
      const Values::Largest all =
          values_.largest({arrival.time.time_since_epoch().count(),
                           std::bit_cast<int64_t>(arrival.seconds), arrival.never},
                          time_of(timeout));
      if (all[2] != 0) {
        never(*work, name, all[2], timeout);
        return;
      }
      move(time_of(timeout));
      const Time start =
          timing_->has_one_clock() ? Time(Time::duration(all[0])) : Holds::instance().now();
      work->hold(timing_->hold(arrival, start, std::bit_cast<double>(all[1])));
    } catch (...) {
      work->fail(std::current_exception());
    }
  });
  return work;
}

// ---- to all ----

EmulatedGroup::WorkPointer EmulatedGroup::broadcast(List& list,
                                                    const ::c10d::BroadcastOptions& options) {
  return run(kBroadcast, bytes_of(list), list, asked(list, options),
             values_.broadcast(list, options.rootRank));
}

EmulatedGroup::WorkPointer EmulatedGroup::allreduce(List& list,
                                                    const ::c10d::AllreduceOptions& options) {
  return run(kAllReduce, bytes_of(list), list, asked(list, options),
             values_.all_reduce(list, options.reduceOp));
}

EmulatedGroup::WorkPointer EmulatedGroup::allreduce_coalesced(
    List& list, const ::c10d::AllreduceCoalescedOptions& options) {
  return allreduce(list, options);
}

EmulatedGroup::WorkPointer EmulatedGroup::reduce(List& list, const ::c10d::ReduceOptions& options) {
  return run(kReduce, bytes_of(list), list, asked(list, options),
             values_.reduce(list, options.reduceOp, options.rootRank));
}

EmulatedGroup::WorkPointer EmulatedGroup::barrier(const ::c10d::BarrierOptions& options) {
  std::optional<at::Device> device;
  if constexpr (requires { options.device; }) {
    device = options.device;
  }
  if (!device && !options.device_ids.empty()) {
    device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(options.device_ids.front()));
  }
  if (!device && last_gpu_ >= 0) {
    device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(last_gpu_.load()));
  }
  if (!device || device->is_cpu()) {
    return run(kBarrier, 0, {}, {.device = at::kCPU, .timeout = options.timeout}, [](auto) {});
  }
  // As NCCL's: what the caller's stream has been given so far comes first, and the host waits.
  const at::Tensor token = at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(*device));
  Asked how = asked(token, options);
  how.is_async = false;
  how.blocks = true;
  return run(kBarrier, 0, {}, how,
             values_.all_reduce({token}, ::c10d::ReduceOp(::c10d::ReduceOp::SUM)));
}

void EmulatedGroup::monitoredBarrier(const ::c10d::BarrierOptions& options,
                                     bool /*wait_all_ranks*/) {
  barrier(options)->wait(kNoTimeout);
}

// ---- gathering and scattering ----

EmulatedGroup::WorkPointer EmulatedGroup::allgather(Lists& outputs, List& inputs,
                                                    const ::c10d::AllgatherOptions& options) {
  return run(kAllGather, bytes_of(outputs), joined(outputs), asked(inputs, options),
             values_.all_gather(outputs, inputs));
}

EmulatedGroup::WorkPointer EmulatedGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                          const ::c10d::AllgatherOptions& options) {
  return run(kAllGather, bytes_of(output), {output}, asked(input, options),
             values_.all_gather_flat({output}, {input}));
}

// `outputs` by rank, then by tensor.
EmulatedGroup::WorkPointer EmulatedGroup::allgather_coalesced(
    Lists& outputs, List& inputs, const ::c10d::AllgatherOptions& options) {
  Lists by_tensor(inputs.size());
  for (const List& of_rank : outputs) {
    TORCH_CHECK_VALUE(of_rank.size() == inputs.size(),
                      "[emu] all_gather_coalesced: ", inputs.size(), " inputs and ", of_rank.size(),
                      " outputs of a rank: as many are allowed");
    for (size_t i = 0; i < inputs.size(); ++i) {
      by_tensor[i].push_back(of_rank[i]);
    }
  }
  return run(kAllGather, bytes_of(outputs), joined(outputs), asked(inputs, options),
             values_.all_gather(by_tensor, inputs));
}

EmulatedGroup::WorkPointer EmulatedGroup::allgather_into_tensor_coalesced(
    List& outputs, List& inputs, const ::c10d::AllgatherOptions& options) {
  return run(kAllGather, bytes_of(outputs), outputs, asked(inputs, options),
             values_.all_gather_flat(outputs, inputs));
}

EmulatedGroup::WorkPointer EmulatedGroup::gather(Lists& outputs, List& inputs,
                                                 const ::c10d::GatherOptions& options) {
  return run(kGather, bytes_of(inputs) * static_cast<uint64_t>(size_), joined(outputs),
             asked(inputs, options), values_.gather(outputs, inputs, options.rootRank));
}

EmulatedGroup::WorkPointer EmulatedGroup::scatter(List& outputs, Lists& inputs,
                                                  const ::c10d::ScatterOptions& options) {
  return run(kScatter, bytes_of(outputs) * static_cast<uint64_t>(size_), outputs,
             asked(outputs, options), values_.scatter(outputs, inputs, options.rootRank));
}

// ---- reducing and scattering ----

EmulatedGroup::WorkPointer EmulatedGroup::reduce_scatter(
    List& outputs, Lists& inputs, const ::c10d::ReduceScatterOptions& options) {
  return run(kReduceScatter, bytes_of(inputs), outputs, asked(outputs, options),
             values_.reduce_scatter(outputs, inputs, options.reduceOp));
}

EmulatedGroup::WorkPointer EmulatedGroup::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const ::c10d::ReduceScatterOptions& options) {
  return run(kReduceScatter, bytes_of(input), {output}, asked(input, options),
             values_.reduce_scatter_flat({output}, {input}, options.reduceOp));
}

EmulatedGroup::WorkPointer EmulatedGroup::reduce_scatter_tensor_coalesced(
    List& outputs, List& inputs, const ::c10d::ReduceScatterOptions& options) {
  return run(kReduceScatter, bytes_of(inputs), outputs, asked(outputs, options),
             values_.reduce_scatter_flat(outputs, inputs, options.reduceOp));
}

// ---- all to all ----

EmulatedGroup::WorkPointer EmulatedGroup::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                        std::vector<int64_t>& output_splits,
                                                        std::vector<int64_t>& input_splits,
                                                        const ::c10d::AllToAllOptions& options) {
  return run(kAllToAllRows, bytes_of(input), {output}, asked(input, options),
             values_.all_to_all_rows(output, input, output_splits, input_splits));
}

EmulatedGroup::WorkPointer EmulatedGroup::alltoall(List& outputs, List& inputs,
                                                   const ::c10d::AllToAllOptions& options) {
  return run(kAllToAll, bytes_of(inputs), outputs, asked(outputs, options),
             values_.all_to_all(outputs, inputs));
}

// ---- messages ----

// A receive ends so long after it has been seen to come, a send so long after it began: a receiver
// does not know when that was.
EmulatedGroup::WorkPointer EmulatedGroup::run_message(const Name& name, const List& tensors,
                                                      int peer,
                                                      const std::function<WorkPointer()>& begin) {
  const int peer_world_rank = peer < 0 ? -1 : world_ranks_[static_cast<size_t>(peer)];
  const Timing::Arrival arrival =
      timing_->arrive(name.operation, bytes_of(tensors), peer_world_rank);
  if (arrival.never != 0) {
    auto work = work_of(name, arrival.began, {});
    never(*work, name, arrival.never, ::c10d::kUnsetTimeout);
    return work;
  }
  const at::Device device = tensors.empty() ? at::Device(at::kCPU) : tensors.front().device();
  if (!device.is_cpu()) {
    TORCH_CHECK_VALUE(!begin, "[emu] a message of a tensor on ", device,
                      " between real ranks: those of tensors of the host are allowed");
    return run_on_gpu(name, arrival, {}, {.device = device, .timeout = ::c10d::kUnsetTimeout},
                      [tensors](auto) {});
  }
  if (!begin) {
    auto work = work_of(name, arrival.began, {});
    work->hold(timing_->hold_message(arrival, arrival.time));
    return work;
  }
  const bool is_sent = name.type == OpType::SEND;
  auto hold = [timing = timing_, arrival, is_sent] {
    return timing->hold_message(arrival, is_sent ? arrival.time : Holds::instance().now());
  };
  const auto real = values_.members().real();
  return c10::make_intrusive<HeldMessage>(rank_, name.type, name.title,
                                          std::vector<int>(real.begin(), real.end()), begin(),
                                          std::move(hold));
}

void EmulatedGroup::check_peer(int peer) const {
  TORCH_CHECK_VALUE(peer >= 0 && peer < size_ && peer != rank_, "[emu] a message with rank ", peer,
                    ": another rank of the group is allowed, 0 to ", size_ - 1);
}

EmulatedGroup::WorkPointer EmulatedGroup::send(List& tensors, int target, int tag) {
  check_peer(target);
  const Members& members = values_.members();
  if (!members.is_real(target)) {
    return run_message(kSend, tensors, target, nullptr);
  }
  return run_message(kSend, tensors, target, [this, tensors, target, tag]() mutable {
    return values_.inner(tensors.front().device())
        .send(tensors, values_.members().mirror(target), tag);
  });
}

EmulatedGroup::WorkPointer EmulatedGroup::recv(List& tensors, int source, int tag) {
  check_peer(source);
  const Members& members = values_.members();
  TORCH_CHECK_VALUE(members.is_real(source), "[emu] a receive from rank ", shown(source),
                    ", which is emulated: nobody knows what it would send; make it real "
                    "(gear.emu.Job(real=...)), of a pipeline one rank of each stage");
  return run_message(kReceive, tensors, source, [this, tensors, source, tag]() mutable {
    return values_.inner(tensors.front().device())
        .recv(tensors, values_.members().mirror(source), tag);
  });
}

EmulatedGroup::WorkPointer EmulatedGroup::recvAnysource(List& tensors, int tag) {
  TORCH_CHECK_VALUE(!values_.is_alone(),
                    "[emu] a receive from any rank, of which none but this one is real: nobody "
                    "knows what they would send; make others real (gear.emu.Job(real=...))");
  return run_message(kReceiveAny, tensors, -1, [this, tensors, tag]() mutable {
    return values_.inner(tensors.front().device()).recvAnysource(tensors, tag);
  });
}

}  // namespace gear::emu
