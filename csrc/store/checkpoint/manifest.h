#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gear::store {

constexpr uint32_t kCheckpointFormat = 4;  ///< the newest that is read

/// The file MANIFEST of a checkpoint directory: which shard file is the checkpoint. It is replaced
/// by one rename, and shard files are never written twice, so at any moment the directory holds one
/// complete checkpoint or none.
struct Manifest {
  uint32_t format = 1;
  uint64_t save = 0;  ///< number of this save in the directory, from 1
  std::string shard_file;
  uint64_t shard_bytes = 0;
  uint32_t header_crc = 0;

  std::string shard_path(const std::string& directory) const;
};

/// Throws InvalidArgument for a missing directory, CorruptData for a directory without a readable
/// manifest or with one of a newer format; says which.
Manifest read_manifest(const std::string& directory);

struct PreparedDirectory {
  std::optional<Manifest> previous;  ///< none if there is no checkpoint yet
  bool made = false;                 ///< the directory was missing
};

/// Makes the directory if it is missing. Throws InvalidArgument when it is a file or holds anything
/// that GEAR did not write.
PreparedDirectory prepare_directory(const std::string& directory);

/// Replaces the manifest in one step: when this throws, the previous one is in force.
void commit_manifest(const std::string& directory, const Manifest& manifest);

/// Removes what an unfinished save left, and the directory too if this save made it.
/// Never throws: the failure that led here is the one to report.
void discard_save(const std::string& directory, const Manifest& manifest, bool made) noexcept;

/// Makes a commit durable and removes the shard files that the manifest does not name. The new
/// checkpoint is in force already: what goes wrong here is not thrown, but returned, a sentence for
/// the log (callers hold a lock, and nobody logs under one).
std::optional<std::string> tidy_directory(const std::string& directory, const Manifest& manifest);

}  // namespace gear::store
