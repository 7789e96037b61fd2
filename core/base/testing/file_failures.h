// Runs a script of file operations again and again and lets each of them fail, or be the last that
// its process does.
#pragma once

#include <functional>
#include <span>
#include <string>

namespace embla::testing {

// Does numbered pieces of work, 1, 2, 3, ... (at most 127), in a directory until one fails, and
// tells each that it was promised to last.
using FileScript =
    std::function<void(const std::string& directory, const std::function<void(int)>& acked)>;
// Looks at what a script left that ended early; `acked` is its last promise, 0 for none.
using FileCheck = std::function<void(const std::string& directory, int acked)>;

// Every use of every failpoint of `points` that the script comes by fails once.
void FailEveryFileOperation(std::span<const char* const> points, const FileScript& script,
                            const FileCheck& check);
// The process of the script dies at every use of every failpoint.
void DieAtEveryFileOperation(std::span<const char* const> points, const FileScript& script,
                             const FileCheck& check);

}  // namespace embla::testing
