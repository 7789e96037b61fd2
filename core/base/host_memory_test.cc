#include "core/base/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/base/testing/temp_directory.h"

namespace embla {
namespace {

class HostMemoryFind : public ::testing::Test {
 protected:
  HostMemoryFind() {
    Write("/proc/sys/kernel/random/boot_id", "7c9f\n");
    Write("/proc/meminfo", "MemTotal:       1048576 kB\nMemFree:           1234 kB\n");
  }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  HostMemory Find() const { return FindHostMemory(root_.path()); }

  testing::TempDirectory root_;
};

TEST_F(HostMemoryFind, IsTheMachinesWithoutALimit) {
  Write("/proc/self/cgroup", "0::/system.slice/embla.service\n");
  Write("/sys/fs/cgroup/system.slice/embla.service/memory.max", "max\n");
  EXPECT_EQ(Find(), (HostMemory{"7c9f", std::int64_t{1} << 30}));
}

TEST_F(HostMemoryFind, IsTheLeastLimitOfTheGroupsAboveTheProcess) {
  Write("/proc/self/cgroup", "0::/system.slice/embla.service\n");
  Write("/sys/fs/cgroup/system.slice/embla.service/memory.max", "1048576\n");
  Write("/sys/fs/cgroup/system.slice/memory.max", "4096\n");
  const HostMemory both = Find();
  EXPECT_EQ(both.bytes, 4096);
  // Another service of the slice shares these bytes, and no other process does.
  Write("/proc/self/cgroup", "0::/system.slice/another.service\n");
  EXPECT_EQ(Find(), both);
  Write("/proc/self/cgroup", "0::/user.slice\n");
  EXPECT_NE(Find().id, both.id);
}

TEST_F(HostMemoryFind, KnowsContainersAndTheFirstVersionOfGroups) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "8192\n");
  EXPECT_EQ(Find().bytes, 8192);
  Write("/sys/fs/cgroup/memory.max", "max\n");
  Write("/proc/self/cgroup", "12:cpu,cpuacct:/docker/5f\n7:memory:/docker/5f\n");
  Write("/sys/fs/cgroup/memory/docker/5f/memory.limit_in_bytes", "2048\n");
  EXPECT_EQ(Find().bytes, 2048);
}

TEST(HostMemoryFindHere, HasAnIdAndBytes) {
  const HostMemory here = FindHostMemory();
  EXPECT_FALSE(here.id.empty());
  EXPECT_GT(here.bytes, 0);
  EXPECT_LT(here.bytes, std::int64_t{1} << 50);
}

}  // namespace
}  // namespace embla
