#include "absl/strings/str_cat.h"
#include "tests/model/steps_world.h"

namespace embla::model {
namespace {

class StepsEncoder {
 public:
  void Put(std::uint64_t value) {
    while (value >= 0x80) {
      out_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    out_.push_back(static_cast<char>(value));
  }
  void Put(const UnitSet& units) {
    Put(units.runs().size());
    for (const UnitSet::Run& run : units.runs()) Put(run.begin), Put(run.end);
  }
  // The version names a plan: there are no two of one in a world.
  void Put(const SyncSteps& steps) {
    Put(ToInt(steps.plan().version)), Put(steps.first_unmade()), Put(steps.frozen());
    Put(steps.units_by_step().size());
    for (const auto& [step, units] : steps.units_by_step()) Put(step), Put(units);
    Put(steps.waiting().size());
    for (const SyncSteps::Waiting& waiting : steps.waiting()) {
      Put(waiting.ticket), Put(waiting.offer.waits), Put(waiting.offer.carries);
      Put(waiting.offer.frozen), Put(waiting.offer.moved);
    }
  }
  void Put(const StepsContents& contents) {
    for (const StepsContent& c : contents) {
      Put(c.counted), Put(c.window), Put(c.made), Put(std::uint64_t{c.is_twice});
    }
  }
  void Put(const StepsNode& node) {
    Put(node.live), Put(node.content), Put(node.synced), Put(node.synced_content);
    Put(node.unsent.size());
    for (const std::uint32_t message : node.unsent) Put(message);
  }
  void Put(const StepsTrainer& trainer) {
    Put(static_cast<std::uint64_t>(trainer.state)), PutInt(trainer.life), PutInt(trainer.step);
    PutInt(trainer.resumes_until), Put(trainer.acked[0]), Put(trainer.acked[1]);
    for (const std::uint8_t node : trainer.route) Put(node);
  }
  void Put(const StepsUnit& unit) {
    PutInt(unit.owner), Put(std::uint64_t{unit.cut.has_value()}), Put(unit.acked);
    if (unit.cut.has_value()) Put(unit.cut->counted), Put(unit.cut->made), PutInt(unit.cut_step);
  }
  void Put(const StepsWorld& world) {
    for (const StepsNode& node : world.nodes) Put(node);
    for (const StepsTrainer& trainer : world.trainers) Put(trainer);
    for (const StepsUnit& unit : world.units) Put(unit);
    for (const int number :
         {world.plan, world.moves, world.restarts, world.deaths, world.timeouts, world.crashes}) {
      PutInt(number);
    }
    out_ += world.broken;
  }
  void PutInt(int value) { Put(static_cast<std::uint64_t>(value)); }

  std::string Take() && { return std::move(out_); }

 private:
  std::string out_;
};

}  // namespace

std::string EncodeWithoutMessages(const StepsWorld& world) {
  StepsEncoder encoder;
  encoder.Put(world);
  return std::move(encoder).Take();
}

std::string Encode(const StepsWorld& world) {
  StepsEncoder encoder;
  encoder.Put(world);
  for (const std::uint32_t message : world.messages) encoder.Put(message);
  return std::move(encoder).Take();
}

std::vector<std::uint32_t> MessagesOf(const StepsWorld& world) { return world.messages; }

}  // namespace embla::model
