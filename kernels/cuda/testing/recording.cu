#include "kernels/cuda/testing/recording.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/testing/check_cuda.h"

namespace embla::kernels::cuda {

struct Recording::Graph {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;

  // What `queue` queues, instead of the graph there was.
  void Capture(const QueueWork& queue) {
    if (graph != nullptr) CheckCuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    CheckCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
    queue(stream);
    CheckCuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  }
};

Recording::Recording(const QueueWork& queue) : graph_(std::make_unique<Graph>()) {
  // Waits for the default stream, by which tests copy: no cudaStreamNonBlocking.
  CheckCuda(cudaStreamCreate(&graph_->stream), "cudaStreamCreate");
  graph_->Capture(queue);
  CheckCuda(cudaGraphInstantiate(&graph_->executable, graph_->graph, 0), "cudaGraphInstantiate");
}

Recording::~Recording() {
  CheckCuda(cudaStreamSynchronize(graph_->stream), "replays");
  CheckCuda(cudaGraphExecDestroy(graph_->executable), "cudaGraphExecDestroy");
  CheckCuda(cudaGraphDestroy(graph_->graph), "cudaGraphDestroy");
  CheckCuda(cudaStreamDestroy(graph_->stream), "cudaStreamDestroy");
}

void Recording::RecordAgain(const QueueWork& queue) {
  // No replay may be under way while its launches change.
  CheckCuda(cudaStreamSynchronize(graph_->stream), "replays");
  graph_->Capture(queue);
  cudaGraphExecUpdateResultInfo info{};
  CheckCuda(cudaGraphExecUpdate(graph_->executable, graph_->graph, &info), "cudaGraphExecUpdate");
}

StreamHandle Recording::ReplayAsync() {
  CheckCuda(cudaGraphLaunch(graph_->executable, graph_->stream), "cudaGraphLaunch");
  return graph_->stream;
}

void Recording::Replay() {
  ReplayAsync();
  CheckCuda(cudaStreamSynchronize(graph_->stream), "a replay");
}

std::size_t Recording::launches() const {
  std::size_t count = 0;
  CheckCuda(cudaGraphGetNodes(graph_->graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  CheckCuda(cudaGraphGetNodes(graph_->graph, nodes.data(), &count), "cudaGraphGetNodes");
  return static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(), [](auto node) {
    cudaGraphNodeType type{};
    CheckCuda(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    return type == cudaGraphNodeTypeKernel;
  }));
}

}  // namespace embla::kernels::cuda
