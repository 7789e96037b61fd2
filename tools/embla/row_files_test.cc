// Tables in files and back, by way of a client that keeps its table in memory; and files that are
// not what they should be.
#include "tools/embla/row_files.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/testing/status_matchers.h"
#include "core/base/testing/temp_directory.h"
#include "embla/testing/unimplemented_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/embla/table_rows_cmd.h"

namespace embla::cli {
namespace {

using ::embla::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

// A table of dim 3 with Adam's state: a count and two arrays.
class MemoryClient final : public client::testing::UnimplementedClient {
 public:
  explicit MemoryClient(bool zch) : zch_(zch) {}

  struct Row {
    std::vector<float> weights = std::vector<float>(3);
    std::vector<float> state = std::vector<float>(7);
    bool operator==(const Row&) const = default;
  };
  std::map<std::int64_t, Row> rows;

  absl::Status RefreshPlan() override { return absl::OkStatus(); }
  std::vector<client::TableInfo> Tables() override {
    client::TableInfo users;
    users.name = "users";
    users.rows = 100;
    users.dim = 3;
    users.optimizer = "adam";
    users.zch = zch_;
    return {users};
  }
  absl::Status ScanTable(std::string_view, bool with_state, const RowSink& sink) override {
    std::int64_t first = 0;
    for (auto it = rows.begin(); it != rows.end();) {
      std::vector<std::int64_t> ids;
      std::vector<float> weights, state;
      for (; it != rows.end() && ids.size() < 7; ++it) {
        ids.push_back(it->first);
        weights.insert(weights.end(), it->second.weights.begin(), it->second.weights.end());
        if (!with_state) continue;
        state.insert(state.end(), it->second.state.begin(), it->second.state.end());
      }
      const auto count = static_cast<std::int64_t>(ids.size());
      const absl::Status status = sink({first, ids, weights, state});
      if (!status.ok()) return status;
      first += count;
    }
    return absl::OkStatus();
  }
  absl::Status WriteRows(std::string_view, std::span<const std::int64_t> ids,
                         std::span<const float> weights, std::span<const float> state,
                         const client::CallOptions&) override {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      Row& row = rows[ids[i]];
      std::copy_n(weights.begin() + i * 3, 3, row.weights.begin());
      if (!state.empty()) std::copy_n(state.begin() + i * 7, 7, row.state.begin());
    }
    return absl::OkStatus();
  }

 private:
  const bool zch_;
};

class RowFilesTest : public ::testing::Test {
 protected:
  std::string Directory(const char* name) { return directory_.path() + "/" + name; }

  void Fill(MemoryClient& client, const std::vector<std::int64_t>& ids) {
    for (const std::int64_t id : ids) {
      MemoryClient::Row& row = client.rows[id];
      for (float& value : row.weights) value = static_cast<float>(random_()) / 7;
      for (float& value : row.state) value = static_cast<float>(random_() % 1000);
    }
  }
  std::vector<std::int64_t> AllRows() {
    std::vector<std::int64_t> ids(100);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
    return ids;
  }

  absl::Status Export(MemoryClient& client, RowFilesRequest request) {
    request.table = "users";
    return TableExportVerb(client, request, {.json = false, .out = out_});
  }
  absl::Status Import(MemoryClient& client, RowFilesRequest request) {
    request.table = "users";
    return TableImportVerb(client, request, {.json = false, .out = out_});
  }

  // A file with `header` and `data`.
  std::string Foreign(const char* directory, const nlohmann::json& header, std::size_t data) {
    std::filesystem::create_directory(Directory(directory));
    const std::string text = header.dump();
    const std::uint64_t length = text.size();
    std::ofstream file(Directory(directory) + "/model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << text << std::string(data, '\1');
    return Directory(directory);
  }

  std::mt19937 random_{1};
  embla::testing::TempDirectory directory_;
  std::ostringstream out_;
};

TEST_F(RowFilesTest, ATableComesBackWithItsState) {
  MemoryClient from(false), to(false);
  Fill(from, AllRows());
  const std::string directory = Directory("users");
  ASSERT_THAT(Export(from, {.directory = directory, .file_bytes = 500}), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("exported 100 rows of users to 9 files"));
  EXPECT_FALSE(std::filesystem::exists(directory + ".partial"));
  ASSERT_THAT(Import(to, {.directory = directory}), IsOk());
  EXPECT_EQ(to.rows, from.rows);
  EXPECT_EQ(Export(from, {.directory = directory}).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(RowFilesTest, WeightsAloneLeaveTheState) {
  MemoryClient from(false), to(false);
  Fill(from, AllRows());
  Fill(to, AllRows());
  const auto before = to.rows;
  ASSERT_THAT(Export(from, {.directory = Directory("users"), .with_state = false}), IsOk());
  ASSERT_THAT(Import(to, {.directory = Directory("users")}), IsOk());
  EXPECT_THAT(out_.str(), HasSubstr("optimizer state stays as it was"));
  for (const auto& [id, row] : to.rows) {
    EXPECT_EQ(row.weights, from.rows[id].weights);
    EXPECT_EQ(row.state, before.at(id).state);
  }
}

TEST_F(RowFilesTest, IdsOfZchTablesComeBack) {
  MemoryClient from(true), to(true), empty(true);
  Fill(from, {-5, 7, 1'000'000'000'000});
  ASSERT_THAT(Export(from, {.directory = Directory("users")}), IsOk());
  ASSERT_THAT(Import(to, {.directory = Directory("users")}), IsOk());
  EXPECT_EQ(to.rows, from.rows);
  ASSERT_THAT(Export(empty, {.directory = Directory("none")}), IsOk());
  ASSERT_THAT(Import(empty, {.directory = Directory("none")}), IsOk());
  EXPECT_TRUE(empty.rows.empty());
}

TEST_F(RowFilesTest, AForeignCheckpointOfHalfPrecisionIsRead) {
  const std::string directory =
      Foreign("torch",
              {{"other", {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4}}}},
               {"t.weight", {{"dtype", "BF16"}, {"shape", {2, 3}}, {"data_offsets", {4, 16}}}}},
              16);
  MemoryClient to(false);
  ASSERT_THAT(Import(to, {.directory = directory, .tensor = "t.weight"}), IsOk());
  ASSERT_EQ(to.rows.size(), 2u);
  float expected = 0;
  const std::uint32_t bits = 0x01010000;
  std::memcpy(&expected, &bits, sizeof(bits));
  EXPECT_EQ(to.rows[1].weights, std::vector<float>(3, expected));
  EXPECT_THAT(out_.str(), HasSubstr("rows that are in no file stay as they were: 98"));
}

TEST_F(RowFilesTest, WhatDoesNotFitIsNamedAndNothingIsWritten) {
  const auto tensor = [](std::vector<std::int64_t> shape, std::size_t end,
                         const char* dtype = "F32") {
    return nlohmann::json{{"dtype", dtype}, {"shape", shape}, {"data_offsets", {0, end}}};
  };
  struct Case {
    nlohmann::json header;
    const char* why;
  };
  const std::vector<Case> cases = {
      {{{"w", tensor({2, 4}, 32)}}, "tensor w: shape [2, 4], expected [2, 3]"},
      {{{"w", tensor({2, 3}, 24, "I64")}}, "dtype I64"},
      {{{"w", tensor({2, 3}, 20)}}, "20 bytes, but its shape has 24"},
      {{{"w", tensor({}, 4)}}, "expected rows x 3"},
      {{{"w", tensor({101, 3}, 1212)}}, "rows 0 to 101, the table has 100"},
      {{{"w", tensor({2, 3}, 24)}, {"w.steps", tensor({2}, 8)}}, "w.momentum1: it is missing"},
      {{{"x", tensor({2, 3}, 24)}}, "has a tensor w"},
      {{{"w", tensor({2, 3}, 5000)}}, "not within the file"},
      {{{"w", 7}}, "no whole safetensors file"},
  };
  MemoryClient to(false);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string directory = Foreign(std::to_string(i).c_str(), cases[i].header, 1300);
    const absl::Status status = Import(to, {.directory = directory, .tensor = "w"});
    EXPECT_THAT(status, Not(IsOk())) << i;
    EXPECT_THAT(std::string(status.message()), HasSubstr(cases[i].why));
  }
  EXPECT_TRUE(to.rows.empty());
  EXPECT_EQ(Import(to, {.directory = Directory("missing")}).code(), absl::StatusCode::kNotFound);
}

TEST_F(RowFilesTest, TwoFilesWithOneRowAreRefused) {
  MemoryClient from(false);
  Fill(from, AllRows());
  const std::string directory = Directory("users");
  ASSERT_THAT(Export(from, {.directory = directory}), IsOk());
  std::filesystem::copy(directory + "/shard-00001-model-00001-of-00001.safetensors",
                        directory + "/again.safetensors");
  EXPECT_THAT(std::string(Import(from, {.directory = directory}).message()),
              HasSubstr("two files have row 0"));
}

TEST_F(RowFilesTest, DamagedFilesAreErrorsNeverMore) {
  MemoryClient from(false);
  Fill(from, AllRows());
  ASSERT_THAT(Export(from, {.directory = Directory("users")}), IsOk());
  const std::string whole =
      *ReadFile(Directory("users") + "/shard-00001-model-00001-of-00001.safetensors");
  std::filesystem::create_directory(Directory("damaged"));
  for (int trial = 0; trial < 2000; ++trial) {
    std::string bytes = whole;
    for (int edits = 1 + static_cast<int>(random_() % 3); edits > 0; --edits) {
      const std::size_t at = random_() % 900;  // The header, most of the time.
      if (random_() % 4 == 0) bytes.resize(std::min(bytes.size(), at * 4));
      if (at < bytes.size()) bytes[at] = static_cast<char>(random_());
    }
    std::ofstream(Directory("damaged") + "/a.safetensors", std::ios::binary) << bytes;
    MemoryClient to(false);
    const absl::Status status = Import(to, {.directory = Directory("damaged")});
    EXPECT_TRUE(status.ok() || to.rows.empty()) << status;
  }
}

}  // namespace
}  // namespace embla::cli
