#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "emu/timing.h"
#include "emu_torch/gpu.h"
#include "emu_torch/held_work.h"
#include "emu_torch/queue.h"
#include "emu_torch/values.h"

namespace gear::emu {

/// What a group needs to know of GPUs.
struct OnGpus {
  Gpu::Load load{};
  /// Makes the group of the real members for tensors on GPUs, where there are several.
  std::function<Values::Inner()> connect{};
  /// By operation, each by ascending bytes.
  std::map<std::string, std::vector<Footprint>> footprints{};
  std::string refused{};  ///< why such tensors are, on all real members; empty: they are not
};

/// The process group `gear_emu` of torch.distributed: a group of which some members are real. Their
/// operations have the values that Values says, and end when Timing says: of tensors of the host by
/// its clock, of tensors of a GPU by that of the GPU, on a stream that is held as NCCL would hold
/// it.
class EmulatedGroup final : public ::c10d::Backend {
 public:
  struct Options final : ::c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds wait) : ::c10d::Backend::Options("gear_emu", wait) {}
  };
  using Pointer = c10::intrusive_ptr<::c10d::Backend>;
  /// Makes the group of some of its members, as torch asks for it; null on those outside.
  using Split = std::function<Pointer(const c10::intrusive_ptr<::c10d::Store>& store,
                                      const std::vector<int>& members,
                                      const c10::intrusive_ptr<::c10d::Backend::Options>& options)>;

  /// `world_ranks`: of its members, for messages. `on_host`: of the real members, as Values has it.
  EmulatedGroup(Members members, std::vector<int> world_ranks, Values::Inner on_host, Plan plan,
                OnGpus on_gpus, Split split, c10::intrusive_ptr<Options> options);
  ~EmulatedGroup() override;
  EmulatedGroup(const EmulatedGroup&) = delete;
  EmulatedGroup& operator=(const EmulatedGroup&) = delete;

  const std::string getBackendName() const override { return "gear_emu"; }
  c10::intrusive_ptr<::c10d::Backend::Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return timing_->calls(); }
  bool supportsSplitting() const override { return true; }
  Pointer split(const c10::intrusive_ptr<::c10d::Store>& store, const std::vector<int>& ranks,
                const c10::intrusive_ptr<::c10d::Backend::Options>& options) override {
    return split_(store, ranks, options);
  }
  ::c10d::ErrorType getError() override { return ::c10d::ErrorType::SUCCESS; }
  void shutdown() override { values_.shut_down(); }

  using WorkPointer = c10::intrusive_ptr<::c10d::Work>;
  using List = std::vector<at::Tensor>;
  using Lists = std::vector<List>;

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
  /// How an operation is called by models, by torch, and in profiles.
  struct Name {
    const char* operation;
    ::c10d::OpType type;
    const char* title;
  };
  static const Name kBroadcast, kAllReduce, kReduce, kAllGather, kGather, kScatter, kReduceScatter,
      kAllToAll, kAllToAllRows, kBarrier, kSend, kReceive, kReceiveAny;

  /// How it was asked for.
  struct Asked {
    at::Device device;
    std::chrono::milliseconds timeout;
    bool is_async = true;
    bool blocks = false;  ///< a wait for it does wait, though a GPU's stream has it
  };
  static Asked asked(const at::Tensor& of, const auto& options);
  static Asked asked(const List& of, const auto& options);

  WorkPointer run(const Name& name, uint64_t bytes, List results, const Asked& asked,
                  Values::Move move);
  WorkPointer run_on_gpu(const Name& name, const Timing::Arrival& arrival, List results,
                         const Asked& asked, Values::Move move);
  Footprint footprint(const char* operation, uint64_t bytes) const;
  c10::intrusive_ptr<HeldWork> work_of(const Name& name, Time began, List results) const;
  void never(HeldWork& work, const Name& name, int64_t why,
             std::chrono::milliseconds timeout) const;
  /// `begin`: of the group of the real members; null where nobody takes it.
  WorkPointer run_message(const Name& name, const List& tensors, int peer,
                          const std::function<WorkPointer()>& begin);
  void check_peer(int peer) const;
  std::chrono::milliseconds time_of(std::chrono::milliseconds asked) const;
  std::string shown(int member) const;

  c10::intrusive_ptr<Options> options_;
  std::vector<int> world_ranks_;
  Values values_;
  std::shared_ptr<Timing> timing_;
  Split split_;
  std::unique_ptr<Queue> queue_;  // what values_ does, where others are waited for

  // Of one GPU: its operations follow each other, whatever stream they are given to.
  struct Line {
    struct Last {
      c10::Stream stream;
      std::shared_ptr<c10::Event> end;
      uint64_t graph = 0;
    };
    c10::Stream stream;  // of those that are asynchronous
    std::optional<Last> last{};
    std::optional<Last> last_captured{};
  };
  OnGpus on_gpus_;
  std::once_flag connected_;
  std::atomic<int> last_gpu_{-1};  // barriers name no device, and mean it
  std::mutex on_gpus_mutex_;
  std::map<int, Line> lines_;  // by device
};

}  // namespace gear::emu
