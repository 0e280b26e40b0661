#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "engine/carrier.h"
#include "torch/gloo.h"
#include "torch/gpu/node_sum.h"
#include "torch/operations.h"
#include "torch/work.h"

namespace gear::process_group {

/// The process group `gear_mpi` of torch.distributed: tensors in the memory of the host, by MPI.
class Backend final : public ::c10d::Backend {
 public:
  struct Options final : ::c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds wait) : ::c10d::Backend::Options("gear_mpi", wait) {}

    /// Pieces of collective operations; the same on all ranks, a multiple of 64.
    uint64_t segment_bytes = 1 << 20;
    /// Whether it takes tensors of GPUs, by way of the host.
    bool takes_gpus = false;
    /// Whether GPUs of one node add up by memory that its ranks share.
    bool shares_memory = false;
  };

  /// Collective over the carrier's group. Throws TransportError when ranks do not come within the
  /// options' timeout.
  Backend(std::shared_ptr<Carrier> carrier, c10::intrusive_ptr<Options> options);
  ~Backend() override;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const std::string getBackendName() const override { return "gear_mpi"; }
  c10::intrusive_ptr<::c10d::Backend::Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;
  ::c10d::ErrorType getError() override { return ::c10d::ErrorType::SUCCESS; }

  using WorkPointer = c10::intrusive_ptr<::c10d::Work>;
  using List = std::vector<at::Tensor>;
  using Lists = std::vector<std::vector<at::Tensor>>;

  /// How sums of float32 travel from here on, in large operations; the same on all ranks.
  Compression compression() const noexcept { return compression_; }
  void set_compression(Compression kind) noexcept { compression_ = kind; }
  /// From here on these go by way of the host, in the place of what the options say. Collective, as
  /// the constructor. `shares_memory`: as in Options. `devices` must outlive all operations.
  void set_devices(const Devices& devices, bool shares_memory);
  /// Whether all its ranks have such memory.
  bool shares_memory() const noexcept { return node_ != nullptr; }
  /// Which operations go by gloo.
  Gloo& gloo() noexcept { return gloo_; }

  WorkPointer broadcast(List& tensors, const ::c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(List& tensors, const ::c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(List& tensors,
                                  const ::c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(List& tensors, const ::c10d::ReduceOptions& options) override;
  WorkPointer allgather(Lists& outputs, List& inputs,
                        const ::c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const ::c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(Lists& outputs, List& inputs,
                                  const ::c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(List& outputs, List& inputs,
                                              const ::c10d::AllgatherOptions& options) override;
  WorkPointer gather(Lists& outputs, List& inputs, const ::c10d::GatherOptions& options) override;
  WorkPointer scatter(List& outputs, Lists& inputs, const ::c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(List& outputs, Lists& inputs,
                             const ::c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const ::c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(List& outputs, List& inputs,
                                              const ::c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                            const ::c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(List& outputs, List& inputs,
                       const ::c10d::AllToAllOptions& options) override;
  WorkPointer send(List& tensors, int target, int tag) override;
  WorkPointer recv(List& tensors, int source, int tag) override;
  WorkPointer recvAnysource(List& tensors, int tag) override;
  WorkPointer barrier(const ::c10d::BarrierOptions& options) override;
  void monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) override;

 private:
  /// How an operation is called in profiles, by torch, and by the other ranks.
  struct Name {
    Kind kind;
    ::c10d::OpType type;
    const char* title;
  };
  struct Terms {
    std::chrono::milliseconds timeout;
    bool async;
    const ::c10d::ReduceOp* reduction = nullptr;
  };
  static const Name kBroadcast, kAllReduce, kReduce, kAllGather, kGather, kScatter, kReduceScatter,
      kAllToAll, kAllToAllRows, kBarrier, kMonitoredBarrier, kSend, kReceive, kReceiveAny;

  /// By gloo or by MPI, as the route says; `by_gloo` makes what begins it later, `by_mpi` makes it.
  template <class ByGloo, class ByMpi>
  WorkPointer run(const Name& name, const Cargo& cargo, const Terms& terms, const ByGloo& by_gloo,
                  const ByMpi& by_mpi);
  template <class ByGloo, class ByMpi>
  [[gnu::cold, gnu::noinline]] WorkPointer run_by_gloo(const Name& name, const Cargo& cargo,
                                                       const Terms& terms, const ByGloo& by_gloo,
                                                       const ByMpi& by_mpi);
  WorkPointer run_by_mpi(const Name& name, const Cargo& cargo, const Terms& terms,
                         Operation operation);
  WorkPointer run_message(const Name& name, const at::Tensor& tensor, int peer, int tag);
  c10::intrusive_ptr<Work> work_of(const Name& name, const Cargo& cargo, Tensors tensors,
                                   const char* route) const;
  std::optional<Entry> entry_of(const Name& name, const Cargo& cargo, const char* route) const;
  double timeout_s(std::chrono::milliseconds asked) const;
  Operations operations() const {
    return {carrier_->place(), compression_, *devices_, node_ != nullptr};
  }
  void share_memory(bool wanted);
  void check_peer(int rank) const;

  c10::intrusive_ptr<Options> options_;
  std::shared_ptr<Carrier> carrier_;
  std::atomic<Compression> compression_{Compression::kNone};
  std::atomic<const Devices*> devices_;
  std::shared_ptr<NodeStage> node_;
  Gloo gloo_;
};

}  // namespace gear::process_group
