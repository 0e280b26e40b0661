#include "deliver/cuda/batch_graphs.h"

namespace gear::deliver {

BatchGraphs::Use::Use(BatchGraphs& graphs, const void* block, cudaStream_t stream)
    : graphs_(graphs), block_(block), stream_(stream) {
  const auto found = graphs.graphs_.find(block);
  if (found == graphs.graphs_.end()) {
    return;
  }
  graph_ = &found->second;
  if (!*graph_) {
    GEAR_CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    capturing_ = true;
  }
}

BatchGraphs::Use::~Use() {
  if (capturing_) {
    Captured dropped;
    static_cast<void>(end_capture(dropped));
  }
}

cudaError_t BatchGraphs::Use::end_capture(Captured& captured) {
  capturing_ = false;
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
  captured = {graph, {graphs_.device_}};
  return error;
}

void BatchGraphs::Use::end() {
  if (graph_ == nullptr) {
    // Not captured the first time: a kernel is loaded by its first launch, which no capture allows.
    if (graphs_.graphs_.size() < graphs_.most_) {
      graphs_.graphs_[block_] = nullptr;
    }
    return;
  }
  if (capturing_) {
    Captured captured;
    GEAR_CUDA_TRY(end_capture(captured));
    cudaGraphExec_t graph = nullptr;
    GEAR_CUDA_TRY(cudaGraphInstantiate(&graph, captured.get(), 0));
    *graph_ = {graph, {graphs_.device_}};
  }
  GEAR_CUDA_TRY(cudaGraphLaunch(graph_->get(), stream_));
}

}  // namespace gear::deliver
