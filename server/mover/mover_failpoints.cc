#include "server/mover/mover_failpoints.h"

#include <variant>

namespace embla {
namespace {

struct FailpointName {
  std::string_view operator()(const OwnRecord&) const { return "mover.log_own"; }
  std::string_view operator()(const AppliedUpdate&) const { return "mover.log_update"; }
  std::string_view operator()(const AbortRecord&) const { return "mover.log_abort"; }
  std::string_view operator()(const ReleaseRecord&) const { return "mover.log_release"; }
  std::string_view operator()(const TrimRecord&) const { return "mover.log_trim"; }
  std::string_view operator()(const ImportRecord&) const { return "mover.log_import"; }
  std::string_view operator()(const DiscardRecord&) const { return "mover.log_discard"; }
  std::string_view operator()(const RelocateRecord&) const { return "mover.log_relocate"; }

  // No point: the update task, or StageRows before it, has done the work.
  std::string_view operator()(const WriteRows&) const { return "mover.nothing"; }
  std::string_view operator()(const StageChunk&) const { return "mover.nothing"; }

  std::string_view operator()(const LogAction& log) const { return std::visit(*this, log.record); }
  std::string_view operator()(const SendPull&) const { return "mover.pull"; }
  std::string_view operator()(const SendChunk&) const { return "mover.chunk"; }
  std::string_view operator()(const SendFinal&) const { return "mover.final"; }
  std::string_view operator()(const SendReport&) const { return "mover.report"; }
  std::string_view operator()(const SendHolds&) const { return "mover.holds"; }
  std::string_view operator()(const SendRelease&) const { return "mover.release"; }
  std::string_view operator()(const SendCovered&) const { return "mover.covered"; }
  std::string_view operator()(const ReserveImport&) const { return "mover.reserve"; }
  std::string_view operator()(const ResetStaged&) const { return "mover.reset"; }
  std::string_view operator()(const InstallStaged&) const { return "mover.install"; }
  std::string_view operator()(const RelocateRows&) const { return "mover.relocate"; }
  std::string_view operator()(const DiscardStaged&) const { return "mover.discard"; }
  std::string_view operator()(const TrimRows&) const { return "mover.trim"; }

  std::string_view operator()(const NodeAction& action) const { return std::visit(*this, action); }
  std::string_view operator()(const StageRows&) const { return "mover.stage"; }
};

}  // namespace

std::string_view FailpointOf(const UnitWork& work) { return std::visit(FailpointName(), work); }

}  // namespace embla
