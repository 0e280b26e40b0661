#include "base/environment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "base/errors.h"

namespace gear::base {
namespace {

constexpr auto kTable = std::to_array<EnvVar>({
    {"GEAR_NUM_THREADS", "the CPUs this process may use, at most 16",
     "threads that gather batches on the CPU, the calling one included"},
    {"GEAR_SIMD", "what this processor has",
     "vector instructions that the core may use: none, avx2 or avx512; all give the same bits"},
    {"GEAR_LOG", "warning", "what the core reports to the log: off, warning, info or debug"},
    {"GEAR_SHM_PREFIX", "gear",
     "prefix of the names of shared regions in /dev/shm: <prefix>-<name of the buffer>"},
    {"GEAR_CACHE", "$XDG_CACHE_HOME/gear, else ~/.cache/gear",
     "folder that keeps what was measured once: the speed of the links to GPUs"},
    {"GEAR_NODE", "the host",
     "name of this rank's node: ranks of one node map each other's memory"},
    {"GEAR_TIMEOUT_S", "300",
     "seconds that a rank waits for the others before it gives up, naming those that are missing"},
    {"GEAR_RUN_ID", "what Slurm, torchrun or MPI calls the run",
     "tells runs apart that meet at one address: the same for all ranks of a run"},
    {"GEAR_NCCL", "the copy that is loaded, else libnccl.so.2 on the loader's path",
     "NCCL library that carries rows between GPUs of different nodes"},
    {"GEAR_VERBS", "libibverbs.so.1 on the loader's path",
     "libibverbs that reads rows of other nodes by RDMA"},
    {"GEAR_VERBS_DEVICE", "the nearest with an active port",
     "RDMA device, or device:port, of this rank: mlx5_0, mlx5_0:1"},
    {"GEAR_VERBS_GID", "RoCE v2 over IPv4, else over IPv6, else the first",
     "index of the port's address (GID)"},
    {"GEAR_VERBS_PKEY", "the first of the port", "partition key, as a decimal number"},
    {"GEAR_VERBS_SL", "0",
     "service level of the reads, 0 to 15, where routing or priorities need it"},
    {"GEAR_VERBS_TC", "0", "traffic class of the reads, 0 to 255: on RoCE four times the DSCP"},
    {"GEAR_FABRIC", "libfabric.so.1 on the loader's path",
     "libfabric that reads rows of other nodes one-sided"},
    {"GEAR_FABRIC_PROVIDER", "the first of cxi, efa, opx, psm3, verbs, psm2, tcp",
     "provider of libfabric: cxi, verbs;ofi_rxm"},
    {"GEAR_FABRIC_DOMAIN", "the nearest of the provider",
     "network interface of libfabric, its domain: cxi0, eth0"},
    {"GEAR_PACK_BELOW", "measured between the ranks",
     "bytes: owners pack shorter runs of rows for ranks that read one-sided; 0: never"},
});

std::optional<std::string> value_of(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::span<const EnvVar> environment_table() { return kTable; }

std::optional<std::string> env_string(std::string_view name) {
  GEAR_CHECK(std::ranges::any_of(kTable, [&](const EnvVar& var) { return var.name == name; }));
  return value_of(std::string(name).c_str());
}

std::optional<int64_t> env_int(std::string_view name, int64_t minimum, int64_t maximum) {
  const std::optional<std::string> text = env_string(name);
  if (!text) {
    return std::nullopt;
  }
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < minimum || value > maximum) {
    throw InvalidArgument(cat("[environment] ", name, "='", *text,
                              "' is not accepted: set an integer from ", minimum, " to ", maximum,
                              ", or unset it"));
  }
  return value;
}

std::optional<std::string> cache_folder() {
  if (const auto folder = env_string("GEAR_CACHE")) {
    return folder;
  }
  if (const auto caches = value_of("XDG_CACHE_HOME")) {
    return *caches + "/gear";
  }
  if (const auto home = value_of("HOME")) {
    return *home + "/.cache/gear";
  }
  return std::nullopt;
}

}  // namespace gear::base
