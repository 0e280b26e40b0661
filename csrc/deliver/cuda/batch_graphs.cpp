#include "deliver/cuda/batch_graphs.h"

namespace gear::deliver {
namespace {

// Ends the capture on every path: a stream that is left capturing is lost to all who use it.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    // Other threads may do meanwhile what a capture does not allow.
    GEAR_CUDA_TRY(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  ~Capture() {
    if (open_) {
      static_cast<void>(cudaStreamEndCapture(stream_, &graph_));
    }
    if (graph_ != nullptr) {
      static_cast<void>(cudaGraphDestroy(graph_));
    }
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaGraphExec_t instantiate() {
    open_ = false;
    GEAR_CUDA_TRY(cudaStreamEndCapture(stream_, &graph_));
    cudaGraphExec_t made = nullptr;
    GEAR_CUDA_TRY(cudaGraphInstantiate(&made, graph_, 0));
    return made;
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  bool open_ = true;
};

}  // namespace

void BatchGraphs::run(const void* block, cudaStream_t stream,
                      const std::function<void()>& launches) {
  const auto found = graphs_.find(block);
  if (found == graphs_.end()) {
    // Not captured the first time: a kernel is loaded by its first launch, which no capture allows.
    launches();
    if (graphs_.size() < most_) {
      graphs_[block] = nullptr;
    }
    return;
  }
  Graph& graph = found->second;
  if (!graph) {
    Capture capture(stream);
    launches();
    graph = {capture.instantiate(), {device_}};
  }
  GEAR_CUDA_TRY(cudaGraphLaunch(graph.get(), stream));
}

}  // namespace gear::deliver
