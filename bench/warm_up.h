// The page cache of benches that read files.
#pragma once

#include <string>

namespace embla {

// Has the page cache take the files of `directory`.
void WarmUp(const std::string& directory);

}  // namespace embla
