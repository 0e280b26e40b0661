#pragma once

#include <climits>
#include <cstddef>
#include <string>

// The part of NCCL's binary interface that GEAR calls, as of version 2.18; later ones keep it. The
// library is looked for when it is first needed, so that neither a build nor an import needs one.
namespace gear::transport::nccl {

struct Communicator;  ///< ncclComm

using Result = int;  ///< ncclResult_t
constexpr Result kSuccess = 0;
constexpr Result kInProgress = 7;

struct UniqueId {  // ncclUniqueId
  char bytes[128];
};

struct Config {  // ncclConfig_t of 2.18: NCCL reads as many bytes as `size` says
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN;  ///< INT_MIN, null: NCCL's own choice
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

constexpr int kByte = 0;  ///< ncclInt8, a ncclDataType_t

struct Library {
  std::string path;  ///< as it was found
  int version = 0;   ///< 22703: 2.27.3

  Result (*get_version)(int*);
  const char* (*get_error_string)(Result);
  const char* (*get_last_error)(Communicator*);
  Result (*get_unique_id)(UniqueId*);
  Result (*comm_init_rank_config)(Communicator**, int ranks, UniqueId, int rank, Config*);
  Result (*comm_get_async_error)(Communicator*, Result*);
  Result (*comm_finalize)(Communicator*);
  Result (*comm_destroy)(Communicator*);
  Result (*comm_abort)(Communicator*);
  Result (*group_start)();
  Result (*group_end)();
  /// (data, count, type, peer, communicator, stream)
  Result (*send)(const void*, size_t, int, int, Communicator*, void*);
  Result (*recv)(void*, size_t, int, int, Communicator*, void*);
};

/// The first of: the file that GEAR_NCCL names, and no other where it is set; the copy that the
/// process has loaded (torch's, JAX's); the loader's libnccl.so.2; that of the package
/// nvidia-nccl beside GEAR's. Throws TransportError, which says where it was looked for, or that it
/// is older than 2.18.
const Library& library();

/// "2.27.3".
std::string version_text(int version);

}  // namespace gear::transport::nccl
