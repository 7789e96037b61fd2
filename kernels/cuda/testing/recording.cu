#include "kernels/cuda/testing/recording.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/testing/check_cuda.h"

namespace embla::kernels::cuda {

struct Recording::Graph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;

  // Replaces the graph by one of the work that `queue` queues.
  void Capture(const QueueWork& queue) {
    if (graph != nullptr) CheckCuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    // The default stream cannot be captured.
    cudaStream_t stream = nullptr;
    CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    CheckCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
    queue(stream);
    CheckCuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    CheckCuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  }
};

Recording::Recording(const QueueWork& queue) : graph_(std::make_unique<Graph>()) {
  graph_->Capture(queue);
  CheckCuda(cudaGraphInstantiate(&graph_->executable, graph_->graph, 0), "cudaGraphInstantiate");
}

Recording::~Recording() {
  CheckCuda(cudaStreamSynchronize(nullptr), "replays");
  CheckCuda(cudaGraphExecDestroy(graph_->executable), "cudaGraphExecDestroy");
  CheckCuda(cudaGraphDestroy(graph_->graph), "cudaGraphDestroy");
}

void Recording::RecordAgain(const QueueWork& queue) {
  // No replay may be under way while its launches change.
  CheckCuda(cudaStreamSynchronize(nullptr), "replays");
  graph_->Capture(queue);
  cudaGraphExecUpdateResultInfo info{};
  CheckCuda(cudaGraphExecUpdate(graph_->executable, graph_->graph, &info), "cudaGraphExecUpdate");
}

void Recording::ReplayAsync() {
  CheckCuda(cudaGraphLaunch(graph_->executable, nullptr), "cudaGraphLaunch");
}

void Recording::Replay() {
  ReplayAsync();
  CheckCuda(cudaStreamSynchronize(nullptr), "a replay");
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
