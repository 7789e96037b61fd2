#include "tests/model/search.h"

#include "tests/model/encode.h"

namespace embla::model {

SearchResult Search(const ModelConfig& config, const SearchOptions& options) {
  return Searcher<Model>(config, options).Run();
}

}  // namespace embla::model
