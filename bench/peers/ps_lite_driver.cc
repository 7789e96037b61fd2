// Drives ps-lite: one scheduler, one server and one worker, three processes on loopback. The
// server's rows lie in one dense array; its handler, ours, gathers rows or steps them by SGD or
// row-wise Adagrad. It has no hash map, no check for NaN, and applies a repeated request again.
//
//   ps_lite_driver TABLES ROWS DIM IDS BAG DTYPE EXPONENT      cases: see driver_loop.h
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>

#include "bench/peers/driver_loop.h"
#include "bench/peers/requests.h"
#include "ps/ps.h"

namespace embla::peers {
namespace {

constexpr std::size_t kPrefetchDistance = 16;

// The server's rows. A bf16 row travels as half as many floats, which nothing reads as floats.
class Rows {
 public:
  explicit Rows(const Shape& shape)
      : shape_(shape),
        floats_(shape.row_bytes() / sizeof(float)),
        rows_(shape.all_rows() * floats_),
        squares_(shape.all_rows()) {
    for (std::int64_t row = 0; row < shape.all_rows(); ++row) {
      FillRow(shape, row, reinterpret_cast<char*>(&rows_[row * floats_]));
    }
  }

  void Gather(const ps::SArray<ps::Key>& keys, ps::SArray<float>& out) const {
    out.resize(keys.size() * floats_);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      Prefetch(keys, i);
      std::memcpy(out.data() + i * floats_, &rows_[keys[i] * floats_], floats_ * sizeof(float));
    }
  }

  void Step(Operation operation, const ps::SArray<ps::Key>& keys,
            const ps::SArray<float>& gradients) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      Prefetch(keys, i);
      const float* gradient = gradients.data() + i * floats_;
      float rate = kLearningRate;
      if (operation == Operation::kRowwiseAdagrad) {
        float sum = 0.0F;
        for (std::size_t j = 0; j < floats_; ++j) sum += gradient[j] * gradient[j];
        float& squares = squares_[keys[i]];
        squares += sum / static_cast<float>(floats_);
        rate /= std::sqrt(squares) + kEpsilon;
      }
      float* row = &rows_[keys[i] * floats_];
      for (std::size_t j = 0; j < floats_; ++j) row[j] -= rate * gradient[j];
    }
  }

 private:
  void Prefetch(const ps::SArray<ps::Key>& keys, std::size_t i) const {
    if (i + kPrefetchDistance >= keys.size()) return;
    const auto* next = reinterpret_cast<const char*>(&rows_[keys[i + kPrefetchDistance] * floats_]);
    for (std::size_t byte = 0; byte < shape_.row_bytes(); byte += 64) {
      __builtin_prefetch(next + byte);
    }
  }

  const Shape shape_;
  const std::size_t floats_;
  std::vector<float> rows_;
  std::vector<float> squares_;  // Row-wise Adagrad's sum per row.
};

void RunServer(const Shape& shape) {
  Rows rows(shape);
  ps::KVServer<float> server(0);
  server.set_request_handle([&rows](const ps::KVMeta& meta, const ps::KVPairs<float>& request,
                                    ps::KVServer<float>* replying) {
    ps::KVPairs<float> reply;
    if (meta.pull) {
      reply.keys = request.keys;
      rows.Gather(request.keys, reply.vals);
    } else {
      rows.Step(static_cast<Operation>(meta.cmd), request.keys, request.vals);
    }
    replying->Response(meta, reply);
  });
  ps::Finalize(0, true);  // Returns when the worker has finished, too.
}

class PsLite : public Peer {
 public:
  explicit PsLite(const Shape& shape) : shape_(shape), worker_(0, 0) {}

  std::vector<Operation> Operations() const override {
    if (shape_.is_bf16) return {Operation::kLookup};
    return {Operation::kLookup, Operation::kSgd, Operation::kRowwiseAdagrad};
  }

  void Begin(Operation operation, std::span<const std::uint64_t> rows, Slot& slot) override {
    slot.distinct.Find(rows);
    const std::vector<ps::Key>& distinct = slot.distinct.rows();
    // Views: the slot keeps rows and sums until the request has ended.
    const ps::SArray<ps::Key> keys(const_cast<ps::Key*>(distinct.data()), distinct.size());
    if (operation == Operation::kLookup) {
      auto values = std::make_shared<ps::SArray<float>>();
      worker_.ZPull(keys, values.get(), nullptr, 0, [this, values, &slot] {
        slot.distinct.Place(shape_, reinterpret_cast<const char*>(values->data()), slot.result);
        slot.done();
      });
      return;
    }
    slot.distinct.SumGradients(shape_, slot.gradients.data(), slot.sums);
    const ps::SArray<float> sums(slot.sums.data(), slot.sums.size());
    worker_.ZPush(keys, sums, {}, static_cast<int>(operation), slot.done);
  }

 private:
  const Shape shape_;
  ps::KVWorker<float> worker_;
};

int FreePort() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool is_bound = bind(listener, generic, length) == 0;
  const int port =
      is_bound && getsockname(listener, generic, &length) == 0 ? ntohs(address.sin_port) : 0;
  close(listener);
  return port;
}

// Runs a process of this role, which ends with this one.
void Fork(const char* role, const Shape& shape) {
  if (fork() != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close(STDIN_FILENO);
  setenv("DMLC_ROLE", role, 1);
  ps::Start(0);
  if (ps::IsServer()) {
    RunServer(shape);
  } else {
    ps::Finalize(0, true);
  }
  _exit(0);
}

int Main(std::span<char*> arguments) {
  const std::optional<Shape> shape = Shape::Parse(arguments.subspan(1));
  if (!shape) {
    std::cerr << "usage: ps_lite_driver TABLES ROWS DIM IDS BAG DTYPE EXPONENT\n";
    return 2;
  }
  setenv("DMLC_NUM_WORKER", "1", 1);
  setenv("DMLC_NUM_SERVER", "1", 1);
  setenv("DMLC_PS_ROOT_URI", "127.0.0.1", 1);
  setenv("DMLC_NODE_HOST", "127.0.0.1", 1);
  setenv("DMLC_PS_ROOT_PORT", std::to_string(FreePort()).c_str(), 1);
  Fork("scheduler", *shape);
  Fork("server", *shape);
  setenv("DMLC_ROLE", "worker", 1);
  ps::Start(0);
  int code = 0;
  {
    PsLite peer(*shape);
    code = ServeCases(*shape, peer);
    if (code != 0) _exit(code);  // The children end with this process.
    ps::Finalize(0, true);
  }
  while (wait(nullptr) > 0) continue;
  return code;
}

}  // namespace
}  // namespace embla::peers

int main(int argc, char** argv) {
  return embla::peers::Main({argv, static_cast<std::size_t>(argc)});
}
