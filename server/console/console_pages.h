// The files of the console's page, which the build puts into the program (server/console/page).
#pragma once

#include <span>
#include <string_view>

namespace embla {

struct ConsolePage {
  std::string_view name;  // Below /console/; empty: the page itself.
  std::string_view type;  // MIME.
  std::string_view content;
};

std::span<const ConsolePage> ConsolePages();

}  // namespace embla
