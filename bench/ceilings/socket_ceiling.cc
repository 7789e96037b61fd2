#include <chrono>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/ceilings/ceiling.h"
#include "bench/ceilings/messages.h"
#include "bench/ceilings/tcp.h"

namespace embla::bench {
namespace {

// One request at a time: send, receive. Several: this thread keeps `in_flight` requests ahead of
// the replies it reads, as far as the kernel's buffers let it.
class TcpCeiling final : public Ceiling {
 public:
  explicit TcpCeiling(TcpSocket socket) : socket_(std::move(socket)) {}

  std::string name() const override { return "plain socket"; }

  absl::StatusOr<double> Run(const Load& load) override {
    const std::vector<std::vector<char>> requests = MakeRequests(load);
    const auto request = [&requests](int number) -> const std::vector<char>& {
      return requests[number % requests.size()];
    };
    std::vector<char> reply(load.reply_bytes);
    const auto begin = std::chrono::steady_clock::now();
    bool alive = true;
    if (load.in_flight <= 1) {
      for (int i = 0; alive && i < load.requests; ++i) {
        alive = socket_.SendAll(request(i).data(), request(i).size()) &&
                socket_.ReceiveAll(reply.data(), reply.size()) &&
                IsAnswered(load, request(i), reply);
      }
    } else {
      std::thread sender([&] {
        for (int i = 0; i < load.requests; ++i) {
          if (!socket_.SendAll(request(i).data(), request(i).size())) return;
        }
      });
      for (int i = 0; alive && i < load.requests; ++i) {
        alive =
            socket_.ReceiveAll(reply.data(), reply.size()) && IsAnswered(load, request(i), reply);
      }
      sender.join();
    }
    if (!alive) return absl::UnavailableError("the ceiling peer does not answer, or wrongly");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  TcpSocket socket_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Ceiling>> SocketCeiling(const CeilingPeer& peer) {
  auto socket = TcpSocket::Connect(peer.socket_address());
  if (!socket.ok()) return socket.status();
  return std::make_unique<TcpCeiling>(*std::move(socket));
}

}  // namespace embla::bench
