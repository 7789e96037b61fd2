// Connections to the data sockets that a node offers (docs/data_sockets.md).
#pragma once

#include <memory>
#include <string>

#include "core/socket/link.h"
#include "core/tls/tls.h"
#include "core/wire/reply_codec.h"

namespace embla {

// How offers are taken.
struct OfferTaker {
  TlsContext tls = nullptr;  // For the node's port; null: plaintext.
  ExpectedPeer node = {};    // Over TLS.
  bool on_this_host = true;  // By a unix socket, where it can be reached.
};

// A connection, which may still be on its way, to who has made `offer`. `peer` is the address by
// which that node was reached, in gRPC's words: ipv4:1.2.3.4:50, ipv6:%5B::1%5D:50. Its ticket is
// to be shown. Null: it cannot be reached.
std::unique_ptr<Link> LinkTo(const wire::DataSocketOffer& offer, const std::string& peer,
                             const OfferTaker& taker);

}  // namespace embla
