// All cuts that a table's rules allow, as problem.h words them: the checker's own reading of the
// rules, without any of the solver's pruning.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "core/planner/problem/cost_model.h"
#include "core/planner/problem/machine.h"
#include "core/planner/problem/problem.h"

namespace embla::planner {

// The devices that a table's rules allow.
struct AllowedPlaces {
  std::vector<std::uint32_t> devices;   // Ascending.
  std::vector<std::uint8_t> has;        // By device.
  std::vector<std::uint32_t> counts;    // By host: its allowed devices.
  std::vector<std::uint32_t> hosts;     // Hosts with at least one.
  std::vector<std::uint32_t> complete;  // Hosts with all their devices allowed.
};

// The allowed places of tables; tables with the same rules share one answer.
class PlaceBook {
 public:
  // Borrowed; outlive this object.
  PlaceBook(const Problem& problem, const Machine& machine)
      : problem_(problem), machine_(machine) {}

  // The answer lives as long as this object.
  absl::StatusOr<const AllowedPlaces*> At(const TableRules& rules);

 private:
  using Key = std::tuple<std::vector<std::string>, std::vector<std::string>,
                         std::vector<std::string>, std::string>;

  const Problem& problem_;
  const Machine& machine_;
  std::map<Key, AllowedPlaces> places_;
};

// Every cut that the rules of `table` allow on `places`, in no particular order.
std::vector<Cut> AllowedCuts(const Problem& problem, const Machine& machine, const Table& table,
                             const AllowedPlaces& places);

}  // namespace embla::planner
