// Random events against a coordinator that is restarted after any of them: what it said lasts.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/base/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator_test_support.h"

namespace embla {
namespace {

using ::embla::testing::IsOk;

constexpr int kNames = 4;

class CoordinatorModel {
 public:
  explicit CoordinatorModel(unsigned seed) : random_(seed) {}

  void Step() {
    switch (random_() % 14) {
      case 0:
        return Register(Name("n"));
      case 1:
        return Disconnect();
      case 2:
      case 3:
        return Beat();
      case 4:
        return BeatAll();
      case 5:
      case 6:
        return Create();
      case 7:
        return Drop();
      case 8:
        return Set();
      case 9:
        return OpenSession();
      case 10:
        return Connect();
      case 11:
        return AskAgain();
      case 12:
        c_.Advance(absl::Milliseconds(random_() % 3000));
        return c_->Tick(c_.now());
      default:
        return Restart();
    }
  }

  void CheckAfterStep() {
    for (const auto& [id, outcome] : c_.Outcomes()) {
      ASSERT_EQ(running_.erase(id), 1u) << "completed a change that was not running";
      ASSERT_EQ(outcome.status.ok(), !outcome.tables.empty());
      // A table may be gone again by the time this looks, never here: one step, one drop at most.
      for (const CreatedTable& created : outcome.tables) {
        ASSERT_NE(c_->GetPlan()->FindTable(created.table->spec.id), nullptr);
      }
      ++(outcome.status.ok() ? created_ : refused_);
    }
    CheckThatNoBatchIsHalfThere();
    const Plan& plan = *c_->GetPlan();
    ASSERT_THAT(plan.Validate(), IsOk());
    ASSERT_GE(plan.version(), last_version_);
    last_version_ = plan.version();
    for (const TablePlan& table : plan.tables()) {
      const auto [it, is_new] = table_names_.emplace(table.spec.id, table.spec.name);
      ASSERT_EQ(it->second, table.spec.name) << "a table id was used twice";
    }
    for (const NodeSpec& node : plan.nodes()) {
      const auto [it, is_new] = node_ids_.emplace(node.name, node.id);
      ASSERT_EQ(it->second, node.id);
    }
    for (const ChangeId change : running_) ASSERT_THAT(c_->ChangeState(change), IsOk());
    CheckThatAllOfItIsStored();
  }

  // Time passes until every creation has ended, one way or the other.
  void Drain() {
    for (int i = 0; i < 700 && !running_.empty(); ++i) {
      c_.Advance(absl::Seconds(1));
      c_->Tick(c_.now());
      CheckAfterStep();
    }
    ASSERT_TRUE(running_.empty());
  }

  int created() const { return created_; }
  int refused() const { return refused_; }

 private:
  std::string Name(const char* prefix) { return prefix + std::to_string(random_() % kNames); }
  bool Chance(unsigned percent) { return random_() % 100 < percent; }

  void CheckThatAllOfItIsStored() {
    const auto other = Coordinator::Open(c_.store(), {.new_cluster_id = "other"}, c_.now());
    ASSERT_THAT(other, IsOk());
    ASSERT_EQ(*(*other)->GetPlan(), *c_->GetPlan());
    ASSERT_EQ((*other)->closed_sessions().refused, c_->closed_sessions().refused);
  }

  void Register(const std::string& name) {
    const std::uint64_t boot_id = 1 + random_() % 3;
    NodeRegistration registration = CoordinatorHarness::Registration(name, boot_id);
    if (Chance(20)) registration.address += "1";
    const auto id = c_->RegisterNode(registration, c_.now());
    if (id.ok()) boot_ids_[*id] = boot_id;
  }

  // A node that registered, or none.
  NodeId AnyNode() {
    if (boot_ids_.empty()) return NodeId{};
    auto it = boot_ids_.begin();
    std::advance(it, random_() % boot_ids_.size());
    return it->first;
  }

  void Disconnect() {
    const NodeId node = AnyNode();
    c_->NodeDisconnected(node, boot_ids_[node], c_.now());
  }

  void Beat() {
    const NodeId node = AnyNode();
    HeartbeatInfo info;
    const PlanVersion version = c_->GetPlan()->version();
    if (Chance(70)) {
      info.plan_version = version;
    } else if (Chance(30)) {
      info.failed_plan_version = version;
      info.failure = absl::ResourceExhaustedError("no room");
    }
    if (Chance(70)) info.sessions_heard = c_->all_sessions().number;
    static_cast<void>(c_->Heartbeat(node, boot_ids_[node], info, c_.now()));
  }

  // Every registered node gets on.
  void BeatAll() {
    for (const auto& [node, boot_id] : boot_ids_) {
      static_cast<void>(c_.Install(node, boot_id));
    }
  }

  void Create() {
    const auto sharding = static_cast<ShardingType>(1 + random_() % 7);
    CreateRequest request{
        .tables = {}, .if_not_exists = Chance(30), .wait = absl::Seconds(1 + random_() % 30)};
    const std::uint64_t count = 1 + random_() % 3;
    for (std::uint64_t i = 0; i < count; ++i) {
      request.tables.push_back(
          {CoordinatorHarness::Spec(Name("t")), {.sharding = sharding, .min_partition = 4}});
    }
    if (Chance(50)) {  // Names that nobody else asks for or drops.
      const std::string pair = "pair" + std::to_string(++pairs_);
      request.tables = {{CoordinatorHarness::Spec(pair + "a"), {.sharding = sharding}},
                        {CoordinatorHarness::Spec(pair + "b"), {.sharding = sharding}}};
    }
    const auto change = c_->StartCreateTables(std::move(request), c_.now());
    if (!change.ok()) return;
    ASSERT_TRUE(running_.insert(*change).second);
  }

  void CheckThatNoBatchIsHalfThere() {
    for (std::uint64_t i = 1; i <= pairs_; ++i) {
      const std::string pair = "pair" + std::to_string(i);
      ASSERT_EQ(c_->GetPlan()->FindTable(pair + "a") == nullptr,
                c_->GetPlan()->FindTable(pair + "b") == nullptr)
          << pair;
    }
  }

  void Drop() { static_cast<void>(c_->DropTable(Name("t"), c_.now())); }

  void Set() {
    static_cast<void>(
        c_->SetTable(Name("t"), {{"learning_rate", std::to_string(random_() % 5)}}, c_.now()));
  }

  void OpenSession() {
    const auto session = c_->OpenSession({.client_name = "trainer"});
    ASSERT_THAT(session, IsOk());
    ASSERT_TRUE(sessions_.insert(session->session).second);
    if (Chance(50)) return;
    const SessionId closed = *std::next(sessions_.begin(), random_() % sessions_.size());
    ASSERT_THAT(c_->CloseSession(closed, ProveSession(c_->key(), closed)), IsOk());
    ASSERT_TRUE(c_->closed_sessions().refused.Has(closed));
  }

  // A new client of a trainer, which asks for a session; some give up.
  void Connect() {
    SessionRequest request{.trainer = Name("trainer"), .client_nonce = ++clients_};
    for (int question = 0; question < 3; ++question) {
      const auto grant = Ask(questions_.emplace_back(Question{request, last_session_}));
      if (grant.ok() && grant->session != SessionId{}) return;
      if (grant.ok()) request.replaces = grant->latest;
      if (Chance(20)) return;
    }
  }

  // The network repeats what some client said once.
  void AskAgain() {
    if (!questions_.empty()) static_cast<void>(Ask(questions_[random_() % questions_.size()]));
  }

  struct Question {
    SessionRequest request;
    SessionId known{};  // The last session that was given when it was first asked.
  };

  // A client has one session; a question closes none that is newer than the question.
  absl::StatusOr<SessionGrant> Ask(const Question& question) {
    const SessionSet closed = c_->closed_sessions().refused;
    const auto grant = c_->OpenSession(question.request);
    for (const auto& [session, client] : client_of_) {
      const bool is_closed_now = c_->closed_sessions().refused.Has(session) && !closed.Has(session);
      EXPECT_TRUE(!is_closed_now || session <= question.known) << ToInt(session);
    }
    if (!grant.ok()) {
      EXPECT_TRUE(absl::IsUnavailable(grant.status()) || absl::IsPermissionDenied(grant.status()))
          << grant.status();
    } else if (grant->session != SessionId{}) {
      EXPECT_FALSE(c_->closed_sessions().refused.Has(grant->session));
      const std::uint64_t client = question.request.client_nonce;
      EXPECT_EQ(client_of_.emplace(grant->session, client).first->second, client);
      // Another one only after the first is over, and forgotten: a question that came very late.
      SessionId& had = session_of_.try_emplace(client, grant->session).first->second;
      EXPECT_TRUE(had == grant->session || c_->closed_sessions().refused.Has(had));
      had = grant->session;
      sessions_.insert(grant->session);
      last_session_ = std::max(last_session_, grant->session);
    }
    return grant;
  }

  void Restart() {
    const Plan before = *c_->GetPlan();
    c_.Restart();
    ASSERT_EQ(*c_->GetPlan(), before);
    running_.clear();  // No caller waits any more.
    boot_ids_.clear();
    // Tables are made only when all nodes of the plan were heard, as they mostly are at once.
    if (!Chance(70)) return;
    for (const auto& [name, id] : node_ids_) Register(name);
  }

  std::mt19937 random_;
  CoordinatorHarness c_;
  PlanVersion last_version_{};
  std::map<NodeId, std::uint64_t> boot_ids_;
  std::map<TableId, std::string> table_names_;
  std::map<std::string, NodeId> node_ids_;
  std::set<SessionId> sessions_;
  std::uint64_t clients_ = 0;
  std::uint64_t pairs_ = 0;          // Pairs of tables that are created together.
  std::vector<Question> questions_;  // All that clients of trainers ever asked.
  SessionId last_session_{};
  std::map<SessionId, std::uint64_t> client_of_;   // By session, its client's client_nonce,
  std::map<std::uint64_t, SessionId> session_of_;  // and the other way round.
  std::set<ChangeId> running_;
  int created_ = 0;
  int refused_ = 0;
};

TEST(CoordinatorRestart, AtAnyStepKeepsEverything) {
  SetLogLevel(LogLevel::kError);
  int created = 0;
  int refused = 0;
  for (unsigned seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    CoordinatorModel model(seed);
    for (int step = 0; step < 150; ++step) {
      model.Step();
      model.CheckAfterStep();
      if (::testing::Test::HasFatalFailure()) return;
    }
    model.Drain();
    if (::testing::Test::HasFatalFailure()) return;
    created += model.created();
    refused += model.refused();
  }
  // The events are such that both happen.
  EXPECT_GT(created, 50);
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace embla
