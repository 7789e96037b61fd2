// The search through worlds of units that move (world.h).
#pragma once

#include "tests/model/searcher.h"
#include "tests/model/world.h"

namespace embla::model {

SearchResult Search(const ModelConfig& config, const SearchOptions& options = {});

}  // namespace embla::model
