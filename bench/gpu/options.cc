#include "bench/gpu/options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "kernels/cuda/launch.h"

namespace embla::bench {
namespace {

[[noreturn]] void Usage(const char* program) {
  std::fprintf(stderr,
               "usage: %s [--json FILE] [--rounds N] [--repeats N] [--table-mib N] [--divide N]\n"
               "          [--only WORKLOAD] [--write-ids FOLDER]\n"
               "--rounds (15), --repeats (8), --table-mib (8192) and --divide (1) are at least 1\n",
               program);
  std::exit(kUsage);
}

// At least 1, else 0.
std::uint32_t CountOf(const std::string& text) {
  char* end = nullptr;
  const unsigned long value = std::strtoul(text.c_str(), &end, 10);
  return text.empty() || *end != '\0' || value > 1u << 30 ? 0 : static_cast<std::uint32_t>(value);
}

}  // namespace

std::uint32_t GpuBenchOptions::UniformRows(std::size_t row_bytes) const {
  return static_cast<std::uint32_t>((std::size_t{table_mib} << 20) / row_bytes);
}

GpuBenchOptions BeginGpuBench(int argc, char** argv) {
  GpuBenchOptions options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) Usage(argv[0]);
    const std::string value = argv[i + 1];
    if (name == "--json") {
      options.json_file = value;
    } else if (name == "--rounds") {
      options.rounds = static_cast<int>(CountOf(value));
    } else if (name == "--repeats") {
      options.repeats = static_cast<int>(CountOf(value));
    } else if (name == "--table-mib") {
      options.table_mib = CountOf(value);
    } else if (name == "--divide") {
      options.divide = CountOf(value);
    } else if (name == "--only") {
      options.only = value;
    } else if (name == "--write-ids") {
      options.ids_folder = value;
    } else {
      Usage(argv[0]);
    }
  }
  if (options.rounds < 1 || options.repeats < 1 || options.table_mib < 1 || options.divide < 1)
    Usage(argv[0]);
  if (kernels::cuda::DeviceCount() == 0) {
    std::fprintf(stderr,
                 "%s: no CUDA device here. It needs a GPU that nvidia-smi lists, its driver, and a "
                 "build for its architecture (tests/gpu.sh makes one).\n",
                 argv[0]);
    std::exit(kNoGpu);
  }
  return options;
}

void FailVerification(const Workload& workload, const std::string& what) {
  std::fprintf(stderr, "%s: %s: wrong result\n", workload.name.c_str(), what.c_str());
  std::exit(kWrongResult);
}

void WriteIds(const std::string& folder, const Workload& workload,
              const std::vector<std::uint32_t>& slots) {
  if (folder.empty()) return;
  std::vector<std::int64_t> ids(slots.size());
  std::transform(slots.begin(), slots.end(), ids.begin(),
                 [&](std::uint32_t slot) { return slot % workload.rows; });
  std::ofstream file(folder + "/" + workload.name + ".ids", std::ios::binary);
  file.write(reinterpret_cast<const char*>(ids.data()),
             static_cast<std::streamsize>(ids.size() * sizeof(ids[0])));
  std::ofstream list(folder + "/workloads.jsonl", std::ios::app);
  list << "{\"name\": \"" << workload.name << "\", \"tables\": " << workload.tables
       << ", \"rows\": " << workload.rows << ", \"dim\": " << workload.dim << ", \"element\": \""
       << (workload.element == kernels::Element::kFloat32 ? "float32" : "bfloat16")
       << "\", \"bags\": " << workload.bags
       << ", \"bag_length\": " << (workload.pooled() ? workload.bag_length : 1) << "}\n";
  file.flush();
  list.flush();
  if (!file || !list) FailWriting(folder + "/" + workload.name + ".ids");
}

void FailWriting(const std::string& path) {
  std::fprintf(stderr, "cannot write %s: is its folder there, and is there room?\n", path.c_str());
  std::exit(kUsage);
}

}  // namespace embla::bench
