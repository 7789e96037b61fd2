#include "server/shard/session_gate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace embla {
namespace {

absl::Status NotGranted(SessionId session) {
  return absl::PermissionDeniedError(absl::StrCat(
      "session ", ToInt(session),
      " has no valid proof that this cluster granted it: send session and session_proof as "
      "OpenSession returned them, or connect again"));
}

// Takes the same time wherever the first difference is.
bool AreEqual(const SessionProof& a, const SessionProof& b) {
  int difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

// How far beyond the last one a number may be after `silence`.
std::uint64_t ReachAfter(absl::Duration silence) {
  const double seconds = std::max(absl::ToDoubleSeconds(silence), 0.0);
  const double most = static_cast<double>(SessionGate::kSeqMax);
  const double more = std::min(seconds * static_cast<double>(SessionGate::kSeqPerSecond), most);
  return SessionGate::kSeqSlack + static_cast<std::uint64_t>(more);
}

}  // namespace

void SessionGate::SetKey(std::shared_ptr<const ClusterKey> key) {
  const MutexLock lock(mu_);
  key_ = std::move(key);
  for (auto& [session, known] : known_) known.proof = {};
}

std::shared_ptr<const ClusterKey> SessionGate::key() const {
  const MutexLock lock(mu_);
  return key_;
}

SessionGate::Known& SessionGate::Remember(SessionId session) {
  const auto known = known_.find(ToInt(session));
  if (known != known_.end()) return known->second;
  if (known_.size() >= kSessionsMax) known_.erase(known_.begin());
  return known_[ToInt(session)];
}

absl::Status SessionGate::Verify(SessionId session, const SessionProof& proof) {
  std::shared_ptr<const ClusterKey> key;
  {
    const MutexLock lock(mu_);
    const auto known = known_.find(ToInt(session));
    const bool is_verified = known != known_.end() && known->second.proof != SessionProof{};
    if (is_verified && AreEqual(known->second.proof, proof)) return absl::OkStatus();
    key = key_;
  }
  if (key == nullptr) {
    return absl::UnavailableError(
        "this node does not have the cluster's key yet, so it cannot tell whose session this is");
  }
  if (proof == SessionProof{} || !IsProofOf(*key, session, proof)) return NotGranted(session);
  const MutexLock lock(mu_);
  if (key_ == key && !closed_.refused.Has(session)) Remember(session).proof = proof;
  return absl::OkStatus();
}

absl::Status SessionGate::Admit(SessionId session, UpdateSeq seq, UpdateSeq first_incomplete,
                                absl::Time now) {
  const MutexLock lock(mu_);
  if (closed_.refused.Has(session)) return absl::OkStatus();  // Said where the order is known.
  Known& known = Remember(session);
  std::uint64_t reach = kSeqMax;
  if (known.seq != UpdateSeq{}) reach = ToInt(known.seq) + ReachAfter(now - known.seen);
  const std::uint64_t most = std::min(reach, kSeqMax);
  if (first_incomplete > seq || ToInt(seq) > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "session ", ToInt(session), ": seq ", ToInt(seq), " with first_incomplete ",
        ToInt(first_incomplete), " is out of reach: the last seq here was ", ToInt(known.seq),
        ", so seq is at most ", most, " by now, and first_incomplete at most seq"));
  }
  if (seq > known.seq) known.seq = seq;
  known.first_incomplete = std::max(known.first_incomplete, first_incomplete);
  known.seen = now;
  return absl::OkStatus();
}

bool SessionGate::IsOver(SessionId session, UpdateSeq seq) const {
  const MutexLock lock(mu_);
  if (closed_.refused.Has(session)) return true;
  const auto known = known_.find(ToInt(session));
  return known != known_.end() && seq < known->second.first_incomplete;
}

void SessionGate::Recall(SessionId session, UpdateSeq seq, absl::Time now) {
  const MutexLock lock(mu_);
  if (closed_.refused.Has(session)) return;
  Known& known = Remember(session);
  known.seq = std::max(known.seq, seq);
  known.seen = now;
}

std::vector<SessionGate::Seen> SessionGate::seen() const {
  const MutexLock lock(mu_);
  std::vector<Seen> all;
  for (const auto& [session, known] : known_) {
    if (known.seq != UpdateSeq{}) all.push_back({SessionId{session}, known.seq, known.seen});
  }
  return all;
}

void SessionGate::Close(const ClosedSessions& closed) {
  const MutexLock lock(mu_);
  closed_.Include(closed);
  absl::erase_if(known_,
                 [&](const auto& entry) { return closed_.refused.Has(SessionId{entry.first}); });
}

bool SessionGate::IsClosed(SessionId session) const {
  const MutexLock lock(mu_);
  return closed_.refused.Has(session);
}

absl::Status SessionGate::Check(SessionId session) const {
  if (!IsClosed(session)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("session ", ToInt(session),
                   " is closed: its trainer ended, another one took over, or its lease ran out "
                   "unheard; connect again"));
}

ClosedSessions SessionGate::closed() const {
  const MutexLock lock(mu_);
  return closed_;
}

}  // namespace embla
