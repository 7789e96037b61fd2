// The copies of a data_parallel table while plans add and remove them and change the primary:
// messages are lost, repeated, late and overtaken, plans reach nodes at any time, and any node is
// killed at any moment and begins again from its journal. No acknowledged update is lost, none is
// applied twice, and a copy that serves lookups has every acknowledged update, always.
//
// The coordinator of the test waits before the next plan like server/coordinator/copy_driver.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/base/mutex.h"
#include "core/base/testing/await.h"
#include "core/base/testing/seeds.h"
#include "core/base/testing/status_matchers.h"
#include "core/rows/row_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/journal/testing/journaled_node.h"
#include "server/shard/testing/local_cluster.h"
#include "server/shard/testing/table_model.h"

namespace embla::testing {
namespace {

constexpr TableId kTable{7};
constexpr SessionId kSession{3};
constexpr std::uint32_t kNodes = 3;
constexpr std::size_t kEventsKept = 60;
constexpr std::size_t kAtOnce = 4;  // Updates under way.
// How long a test waits for what must come.
constexpr absl::Duration kRestMax = absl::Seconds(30);

TableSpec Spec() {
  TableSpec spec;
  spec.id = kTable;
  spec.name = "shared";
  spec.rows = 40;
  spec.dim = 8;
  spec.dtype = DType::kFloat16;
  spec.rounding = Rounding::kStochastic;
  spec.optimizer.kind = OptimizerKind::kAdam;
  spec.SetDefaults();
  return spec;
}

// The answer to an update, set by another thread.
class Answer {
 public:
  void Set(const absl::Status& status) {
    const MutexLock lock(mu_);
    status_ = status;
  }
  std::optional<absl::Status> Get() const {
    const MutexLock lock(mu_);
    return status_;
  }

 private:
  mutable Mutex mu_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
};

class CopiesTrial {
 public:
  explicit CopiesTrial(std::uint32_t seed, bool loses = false)
      : random_(seed),
        spec_(Spec()),
        acked_(spec_),
        ahead_(spec_),
        transport_(seed),
        loses_(loses) {
    for (std::uint32_t n = 0; n < kNodes; ++n) {
      NodeSpec& node = specs_.emplace_back();
      node.id = NodeId{n + 1};
      node.name = absl::StrCat("n", n);
      node.address = absl::StrCat("127.0.0.1:", n + 1);
      node.devices.resize(1 + random_() % 2, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 28});
      JournaledNode::Options options;
      options.node.name = node.name;
      options.node.devices = node.devices;
      options.node.replica_backlog_max = 4;  // Fewer than updates are under way: some wait.
      options.node.replica_window_rows_max = 7;
      options.node.replica_backoff = absl::Milliseconds(1);
      options.node.replica_timeout = absl::Milliseconds(200);
      options.node.replica_probe_interval = absl::Milliseconds(5);
      options.journal.level = Durability::kSynced;
      options.journal.snapshots.changes_share = 20;
      nodes_.push_back(std::make_unique<JournaledNode>(options));
      Link(n);
    }
    copies_ = {NodeId{1}, NodeId{2}};
    Commit();
    for (std::uint32_t n = 0; n < kNodes; ++n) InstallNewest(n);
  }

  ~CopiesTrial() {
    if (::testing::Test::HasFailure()) std::cout << absl::StrJoin(events_, "\n") << std::endl;
    for (std::uint32_t n = 0; n < kNodes; ++n) {
      transport_.SetNode(NodeId{n + 1}, nullptr);
      nodes_[n]->Stop();
    }
  }

  void Run(int steps) {
    transport_.SetFaults(
        {.lost_request = 50, .lost_answer = 50, .repeated_later = 100, .overtaken = 100});
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) Step();
    transport_.SetFaults({});
    const auto has_come_to_rest = [&] {
      if (::testing::Test::HasFailure() || IsAtRest()) return true;
      for (std::uint32_t n = 0; n < kNodes; ++n) InstallNewest(n);
      Train(false);
      CheckCopies();
      return false;
    };
    ASSERT_TRUE(AwaitFor(has_come_to_rest, kRestMax, "the copies are at rest")) << Describe();
  }

  std::uint64_t acknowledged() const { return acknowledged_; }
  int changes() const { return changes_; }
  int leads() const { return leads_; }
  int snapshots() const { return snapshots_; }
  bool has_lost() const { return lost_.has_value(); }

 private:
  enum class Change : std::uint8_t { kNone, kAdd, kRemove, kLead, kLose };

  void Step() {
    switch (random_() % 16) {
      case 0:
      case 1:
        return InstallNewest(random_() % kNodes);
      case 2:
        return ChangeCopies();
      case 3:
        if (random_() % 8 == 0) Kill(random_() % kNodes);
        if (loses_ && !lost_ && random_() % 50 == 0) Lose(random_() % kNodes);
        if (lost_) Inherit();
        return;
      case 4:
        if (random_() % 3 == 0) Snapshot(random_() % kNodes);
        return CheckCopies();
      case 5:
        return std::this_thread::yield();
      default:
        return Train(true);
    }
  }

  // ---- The coordinator.
  void Commit() {
    TablePlan table{.spec = spec_, .sharding = ShardingType::kDataParallel, .replicas = {}};
    for (const NodeId node : copies_) {
      const auto last = static_cast<std::uint32_t>(specs_[ToInt(node) - 1].devices.size() - 1);
      table.replicas.push_back({{.row_begin = 0,
                                 .row_end = spec_.rows,
                                 .column_begin = 0,
                                 .column_end = spec_.dim,
                                 .device = {node, last}}});
    }
    const PlanVersion version{plan_ == nullptr ? 1 : ToInt(plan_->version()) + 1};
    std::vector<NodeSpec> nodes = specs_;
    std::erase_if(nodes, [this](const NodeSpec& node) { return lost_ == node.id; });
    plan_ = std::make_shared<const Plan>(version, "test", nodes, std::vector{table});
    ASSERT_THAT(plan_->Validate(), IsOk());
    Note("committed");
  }

  ShardNode::CopyView ViewOf(NodeId node) {
    return nodes_[ToInt(node) - 1]->node().ViewCopy(kTable);
  }

  // Whether the last change has come into effect.
  bool IsMade() {
    if (lost_ == changed_) return change_ != Change::kLose;
    const ShardNode::CopyView view = ViewOf(changed_);
    if (view.plan_version < plan_->version()) return false;
    switch (change_) {
      case Change::kNone:
        return true;
      case Change::kAdd:
        return view.serves;
      case Change::kLead:
      case Change::kLose:
        return view.leads;
      case Change::kRemove:
        break;
    }
    return !view.is_here && ViewOf(copies_.front()).leads;
  }

  void ChangeCopies() {
    if (change_ != Change::kNone && !IsMade()) return;
    change_ = Change::kNone;
    const NodeId node{static_cast<std::uint32_t>(1 + random_() % kNodes)};
    if (lost_ == node) return;
    const auto copy = std::find(copies_.begin(), copies_.end(), node);
    changed_ = node;
    if (copy == copies_.end()) {
      copies_.push_back(node);
      change_ = Change::kAdd;
    } else if (copy == copies_.begin()) {
      return;
    } else if (copies_.size() == 2 && random_() % 2 == 0) {
      const ShardNode::CopyView view = ViewOf(node);
      if (view.plan_version < plan_->version() || !view.serves) return;
      std::swap(copies_[0], copies_[1]);
      change_ = Change::kLead;
      ++leads_;
    } else {
      copies_.erase(copy);
      change_ = Change::kRemove;
    }
    ++changes_;
    Commit();
  }

  // The node is lost with its disk, unless nobody else has everything. A copy that was removed is
  // waited for before another one inherits, as copy_driver.h does: it serves until it hears of
  // that.
  void Lose(std::uint32_t n) {
    const NodeId node = specs_[n].id;
    if (change_ == Change::kRemove && changed_ != node && ViewOf(changed_).is_here) return;
    transport_.SetNode(node, nullptr);
    nodes_[n]->Stop();
    const bool has_heir = std::ranges::any_of(copies_, [&](NodeId copy) {
      return copy != node && ViewOf(copy).plan_version == plan_->version() && ViewOf(copy).has_all;
    });
    if (!has_heir) {
      nodes_[n]->Start();
      return Link(n);
    }
    lost_ = node;
    Note(absl::StrCat("n", n, " is lost"));
    for (Pending& update : pending_) update.answer = nullptr;
    change_ = Change::kLose;
    changed_ = node;
    Inherit();
  }
  // The lost copy goes, and a copy that has everything leads, as kInherit of copy_driver.h.
  void Inherit() {
    const bool is_there = std::ranges::count(copies_, *lost_) > 0;
    if (!is_there && !is_dropped_) {  // The node is out of the plan: nothing waits for it any more.
      is_dropped_ = true;
      return Commit();
    }
    const bool waits = change_ == Change::kLose || change_ == Change::kLead;
    if (!is_there && (!waits || ViewOf(copies_.front()).leads)) {
      if (change_ == Change::kLose) change_ = Change::kNone;
      return;
    }
    for (const NodeId heir : copies_) {
      if (heir == *lost_) continue;
      const ShardNode::CopyView view = ViewOf(heir);
      if (view.plan_version < plan_->version() || !view.has_all) continue;
      if (!is_there && heir == copies_.front()) return;
      std::erase(copies_, *lost_);
      std::rotate(copies_.begin(), std::ranges::find(copies_, heir),
                  std::ranges::find(copies_, heir) + 1);
      change_ = Change::kLose;
      changed_ = heir;
      is_dropped_ = true;
      return Commit();
    }
  }

  void InstallNewest(std::uint32_t n) {
    if (lost_ == specs_[n].id) return;
    const absl::Status status = nodes_[n]->node().InstallPlan(plan_, specs_[n].id);
    EXPECT_THAT(status, IsOk());
    Note(absl::StrCat("installed on n", n));
  }

  void Link(std::uint32_t n) {
    nodes_[n]->node().set_replica_transport(&transport_);
    transport_.SetNode(specs_[n].id, &nodes_[n]->node());
  }
  // Not while a copy comes, goes or changes its role.
  void Snapshot(std::uint32_t n) {
    if (lost_ == specs_[n].id) return;
    const absl::Status taken = nodes_[n]->TakeSnapshot();
    EXPECT_TRUE(taken.ok() || absl::IsUnavailable(taken)) << taken;
    if (!taken.ok()) return;
    ++snapshots_;
    Note(absl::StrCat("snapshot of n", n));
  }
  void Kill(std::uint32_t n) {
    if (lost_ == specs_[n].id) return;
    transport_.SetNode(specs_[n].id, nullptr);
    Note(absl::StrCat("n", n, " is killed"));
    nodes_[n]->Kill();
    nodes_[n]->Start();
    Link(n);
    Note(absl::StrCat("n", n, " is back"));
  }

  // ---- The trainer: some updates at a time, of different rows, each sent again until it is
  // acknowledged. So a row is as the last acknowledged update left it, or the one under way.
  struct Pending {
    std::uint64_t seq = 0;
    UpdatePartData part;
    std::map<std::int64_t, std::vector<float>> written = {};                  // Images, or
    std::vector<std::pair<std::int64_t, std::vector<float>>> gradients = {};  // gradients, by row.
    std::shared_ptr<Answer> answer = nullptr;                                 // Null: not sent.
  };

  void Train(bool begins) {
    if (begins && pending_.size() < kAtOnce && random_() % 3 == 0) return BeginUpdate();
    if (pending_.empty()) return;
    const auto update = pending_.begin() + static_cast<std::ptrdiff_t>(random_() % pending_.size());
    if (update->answer == nullptr) {
      Send(*update);
    } else if (const std::optional<absl::Status> status = update->answer->Get()) {
      update->answer = nullptr;
      if (status->ok()) return EndUpdate(update);
      const bool may_repeat = absl::IsUnavailable(*status) || absl::IsFailedPrecondition(*status) ||
                              absl::IsDeadlineExceeded(*status) || absl::IsNotFound(*status) ||
                              absl::IsResourceExhausted(*status);
      EXPECT_TRUE(may_repeat) << *status;
    }
  }

  // A row that no update under way has.
  std::int64_t RandomRow() {
    for (;;) {
      const auto row = static_cast<std::int64_t>(random_() % spec_.rows);
      const bool is_free = std::ranges::none_of(pending_, [row](const Pending& update) {
        return std::ranges::count(update.part.ids, RowId{row}) > 0;
      });
      if (is_free) return row;
    }
  }

  void BeginUpdate() {
    Pending update{.seq = ++seq_, .part = {}};
    update.part.part.table = kTable;
    update.part.part.column_end = spec_.dim;
    // Some rows are written, not stepped.
    random_() % 4 == 0 ? AddImages(update) : AddGradients(update);
    Do(update, ahead_);
    pending_.push_back(std::move(update));
  }
  void AddImages(Pending& update) {
    UpdatePartData& data = update.part;
    data.part.form = UpdatePart::Form::kImages;
    data.part.state_floats = 1 + 2 * spec_.dim;  // Adam's.
    std::set<std::int64_t> rows;
    for (int i = 0; i < 3; ++i) rows.insert(RandomRow());
    std::vector<float> images;
    for (const std::int64_t row : rows) {
      data.ids.push_back(RowId{row});
      std::vector<float>& image = update.written[row];
      for (std::size_t i = 0; i < data.part.image_floats(); ++i) {
        image.push_back(std::abs(uniform_(random_)));
      }
      images.insert(images.end(), image.begin(), image.end());
    }
    const auto floats = static_cast<std::uint32_t>(data.part.image_floats());
    data.gradients = EncodeRows(images, floats, DType::kFloat32);
  }
  void AddGradients(Pending& update) {
    std::vector<float> gradients;
    for (int i = 0; i < 3; ++i) {
      const std::int64_t row = RandomRow();
      update.part.ids.push_back(RowId{row});
      std::vector<float>& gradient =
          update.gradients.emplace_back(row, std::vector<float>()).second;
      for (std::uint32_t c = 0; c < spec_.dim; ++c) gradient.push_back(uniform_(random_));
      gradients.insert(gradients.end(), gradient.begin(), gradient.end());
    }
    update.part.gradients = EncodeRows(gradients, spec_.dim, DType::kFloat32);
  }
  void Do(const Pending& update, TableModel& model) const {
    for (const auto& [row, gradient] : update.gradients) model.Add(row, gradient);
    model.Step(update.seq);
    for (const auto& [row, image] : update.written) {
      const std::span<const float> all(image);
      model.Write(row, all.first(spec_.dim), all.subspan(spec_.dim));
    }
  }

  // By the newest plan, or by one that has been replaced.
  void Send(Pending& update) {
    UpdateBatch header;
    header.plan_version = PlanVersion{1};
    header.session = kSession;
    header.seq = UpdateSeq{update.seq};
    header.first_incomplete = UpdateSeq{pending_.front().seq};
    header.step = update.seq;
    const std::uint32_t to = random_() % 4 == 0 ? random_() % kNodes : ToInt(copies_.front()) - 1;
    if (lost_ == specs_[to].id) return;
    UpdateBatch request = Pack(header, {update.part});
    update.answer = std::make_shared<Answer>();
    nodes_[to]->node().Update(std::move(request),
                              absl::Now() + absl::Milliseconds(1 + random_() % 200),
                              [answer = update.answer](const absl::StatusOr<UpdateResult>& result) {
                                answer->Set(result.status());
                              });
  }

  void EndUpdate(std::deque<Pending>::iterator update) {
    Note(absl::StrCat("acknowledged ", update->seq));
    Do(*update, acked_);
    pending_.erase(update);
    ++acknowledged_;
  }

  // ---- What must be true.
  bool IsAtRest() {
    if (lost_) Inherit();
    if (!pending_.empty() || !IsMade()) return false;
    for (const NodeId node : copies_) {
      if (!ViewOf(node).serves) return false;
    }
    return ViewOf(copies_.front()).leads;
  }

  void Note(absl::string_view event) {
    if (events_.size() == kEventsKept) events_.pop_front();
    events_.push_back(absl::StrCat(absl::FormatTime("%M:%E6S", absl::Now(), absl::UTCTimeZone()),
                                   " ", event, ": ", Describe()));
  }
  std::string Describe() {
    std::string text = absl::StrCat("plan ", ToInt(plan_->version()), ", copies");
    for (const NodeId node : copies_) absl::StrAppend(&text, " n", ToInt(node) - 1);
    absl::StrAppend(&text, ", update ", seq_, ", ", pending_.size(), " under way");
    for (const NodeSpec& node : specs_) {
      if (lost_ == node.id) continue;
      const ShardNode::CopyView view = ViewOf(node.id);
      absl::StrAppend(&text, "; ", node.name, " plan ", ToInt(view.plan_version),
                      view.is_here ? " here" : "", view.serves ? " serves" : "",
                      view.leads ? " leads" : "", view.has_all ? " has all" : "");
    }
    return text;
  }

  void CheckCopies() {
    for (std::uint32_t n = 0; n < kNodes; ++n) CheckCopy(n);
  }

  // Every row is the one after its last acknowledged update, or the one under way.
  void CheckCopy(std::uint32_t n) {
    if (lost_ == specs_[n].id) return;
    const absl::Status status =
        nodes_[n]->node().ReadRows({kTable, 0, spec_.rows, {}, true}, [&](Buffer encoded) {
          const absl::StatusOr<RowBlock> block = DecodeRowBlock(encoded.bytes());
          EXPECT_THAT(block, IsOk());
          for (std::size_t i = 0; i < block->rows.size(); ++i) {
            const bool is_right = Has(acked_, *block, i) || Has(ahead_, *block, i);
            EXPECT_TRUE(is_right) << "row " << ToInt(block->rows[i]) << " of node n" << n
                                  << " after update " << seq_;
          }
          return absl::OkStatus();
        });
    const bool is_away = absl::IsUnavailable(status) || absl::IsNotFound(status) ||
                         absl::IsFailedPrecondition(status);
    EXPECT_TRUE(status.ok() || is_away) << status;
  }

  bool Has(const TableModel& model, const RowBlock& block, std::size_t i) const {
    const ColumnRange columns{0, spec_.dim};
    const std::size_t row_bytes = RowBytes(spec_.dtype, spec_.dim);
    const std::vector<std::byte> weights = model.Weights(ToInt(block.rows[i]), columns);
    const std::vector<float> state = model.State(ToInt(block.rows[i]), columns);
    return std::memcmp(weights.data(), block.weights.data() + i * row_bytes, row_bytes) == 0 &&
           std::memcmp(state.data(), block.state.data() + i * state.size(),
                       state.size() * sizeof(float)) == 0;
  }

  std::mt19937 random_;
  std::uniform_real_distribution<float> uniform_{-1.0f, 1.0f};
  const TableSpec spec_;
  TableModel acked_, ahead_;
  std::vector<NodeSpec> specs_;
  LocalTransport transport_;
  std::vector<std::unique_ptr<JournaledNode>> nodes_;

  PlanPtr plan_;
  std::vector<NodeId> copies_;  // By plan_.
  Change change_ = Change::kNone;
  NodeId changed_{1};
  int changes_ = 0;
  int leads_ = 0;
  int snapshots_ = 0;
  const bool loses_;  // A node is lost for ever.
  std::optional<NodeId> lost_;
  bool is_dropped_ = false;  // The lost node is in no plan any more.

  std::uint64_t seq_ = 0;
  std::deque<Pending> pending_;  // By seq.
  std::uint64_t acknowledged_ = 0;
  std::deque<std::string> events_;  // For who looks into a failure.
};

// A replica alone, told by the test what its primary would tell it.
class ToldCopyTest : public ::testing::Test {
 protected:
  using Kind = ReplicaMessage::Kind;
  // The answer to a message, set by another thread.
  struct Told {
    std::optional<std::uint64_t> order() {
      const MutexLock lock(mu);
      if (!ack.has_value()) return std::nullopt;
      EXPECT_THAT(*ack, IsOk());
      return ack->ok() ? std::optional((*ack)->order) : std::nullopt;
    }

    Mutex mu;
    std::optional<absl::StatusOr<ReplicaAck>> ack ABSL_GUARDED_BY(mu);
  };

  void SetUp() override {
    std::vector<NodeSpec> specs(2);
    TablePlan table{.spec = Spec(), .sharding = ShardingType::kDataParallel, .replicas = {}};
    for (std::uint32_t n = 0; n < 2; ++n) {
      specs[n].id = NodeId{n + 1};
      specs[n].name = absl::StrCat("n", n + 1);
      specs[n].address = absl::StrCat("127.0.0.1:", n + 1);
      specs[n].devices = Options().node.devices;
      table.replicas.push_back(
          {{.row_end = Spec().rows, .column_end = Spec().dim, .device = {specs[n].id, 0}}});
    }
    const auto plan =
        std::make_shared<const Plan>(PlanVersion{1}, "test", specs, std::vector{table});
    ASSERT_THAT(copy_.node().InstallPlan(plan, NodeId{2}), IsOk());
  }

  static JournaledNode::Options Options() {
    JournaledNode::Options options;
    options.node.name = "n2";
    options.node.devices.resize(1, DeviceSpec{DeviceKind::kCpu, std::int64_t{1} << 28});
    options.journal.level = Durability::kSynced;
    return options;
  }

  std::shared_ptr<Told> Tell(Kind kind, std::uint64_t reign, std::uint64_t order) {
    ReplicaMessage message;
    message.content = CopyProbe{kTable, reign, order};
    message.plan_version = message.term = PlanVersion{1};
    UpdatePartData data;
    data.part.table = kTable;
    data.part.column_end = Spec().dim;
    data.ids = {RowId{1}};
    data.gradients = EncodeRows(std::vector<float>(Spec().dim, 1.0f), Spec().dim, DType::kFloat32);
    UpdateBatch header;
    header.plan_version = PlanVersion{1};
    header.session = kSession;
    header.seq = header.first_incomplete = UpdateSeq{order};
    if (kind == Kind::kUpdate) {
      message.content = CopiedUpdate{kTable, reign, order, Pack(header, {data})};
    }
    auto told = std::make_shared<Told>();
    copy_.node().ApplyReplicated(std::move(message), absl::InfiniteFuture(),
                                 [told](const absl::StatusOr<ReplicaAck>& ack) {
                                   const MutexLock lock(told->mu);
                                   told->ack = ack;
                                 });
    return told;
  }
  static std::optional<std::uint64_t> AwaitOrder(const std::shared_ptr<Told>& told) {
    AwaitFor([&] { return told->order().has_value(); }, kRestMax, "an answer");
    return told->order();
  }

  JournaledNode copy_{Options()};
};

// The primary acknowledges what a copy says it has, by whichever message it asks.
TEST_F(ToldCopyTest, SaysThatItHasAnUpdateWhenItsJournalDoes) {
  EXPECT_EQ(AwaitOrder(Tell(Kind::kProbe, 77, 1)), 0u);
  copy_.disk().Hold(SimulatedStorage::Gate::kSync);
  const auto update = Tell(Kind::kUpdate, 77, 1);
  const auto probe = Tell(Kind::kProbe, 77, 1);
  AwaitOrder(Tell(Kind::kUpdate, 78, 1));  // Another reign's, behind them: it is refused at once.
  EXPECT_FALSE(update->order().has_value());
  EXPECT_FALSE(probe->order().has_value());
  copy_.disk().Release(SimulatedStorage::Gate::kSync);
  EXPECT_EQ(AwaitOrder(update), 1u);
  EXPECT_EQ(AwaitOrder(probe), 1u);
  // A probe of what is written needs no record of its own.
  copy_.disk().Hold(SimulatedStorage::Gate::kSync);
  EXPECT_EQ(AwaitOrder(Tell(Kind::kProbe, 77, 1)), 1u);
  copy_.disk().Release(SimulatedStorage::Gate::kSync);
}

TEST(Copies, NothingIsLostOrDoubledWhileTheyComeGoAndDie) {
  std::uint64_t acknowledged = 0;
  int changes = 0;
  int leads = 0;
  int snapshots = 0;
  for (const std::uint32_t seed : TestSeeds(6)) {
    SCOPED_TRACE(::testing::Message() << "EMBLA_TEST_SEED=" << seed);
    CopiesTrial trial(seed);
    trial.Run(6000);
    acknowledged += trial.acknowledged();
    changes += trial.changes();
    leads += trial.leads();
    snapshots += trial.snapshots();
    if (HasFailure()) return;
  }
  RecordProperty("acknowledged", std::to_string(acknowledged));
  RecordProperty("changes", changes);
  RecordProperty("changes_of_primary", leads);
  RecordProperty("snapshots", snapshots);
  EXPECT_GT(snapshots, 0);
  EXPECT_GT(changes, 0);
}

// The primary among them; its last copies have everything, and go on.
TEST(Copies, NothingIsLostWithANodeThatNeverComesBack) {
  int lost = 0;
  const std::vector<std::uint32_t> seeds = TestSeeds(6);
  for (const std::uint32_t seed : seeds) {
    SCOPED_TRACE(::testing::Message() << "EMBLA_TEST_SEED=" << seed);
    CopiesTrial trial(seed, /*loses=*/true);
    trial.Run(6000);
    lost += trial.has_lost() ? 1 : 0;
    if (HasFailure()) return;
  }
  // In one trial there may be no moment at which a node may be lost.
  if (seeds.size() > 1) {
    EXPECT_GT(lost, 0);
  }
}

}  // namespace
}  // namespace embla::testing
