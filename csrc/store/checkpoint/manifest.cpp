#include "store/checkpoint/manifest.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <locale>
#include <sstream>
#include <vector>

#include "base/errors.h"
#include "base/files/crc32c.h"
#include "base/files/file.h"

namespace gear::store {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "MANIFEST";
constexpr const char* kTemporary = "MANIFEST.tmp";
constexpr uint64_t kMaxBytes = 4096;

std::string path_in(const std::string& directory, const std::string& name) {
  return (fs::path(directory) / name).string();
}

bool is_shard_file(const std::string& name) {
  return name.starts_with("shard-") && name.ends_with(".gear");
}

std::string hex(uint32_t value) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", value);
  return digits;
}

std::string text_of(const Manifest& manifest) {
  // std::to_string: base::cat groups digits where the process's locale does.
  const std::string body =
      base::cat("gear-checkpoint ", std::to_string(manifest.format), "\nsave ",
                std::to_string(manifest.save), "\nshard 0 1 ", manifest.shard_file, ' ',
                std::to_string(manifest.shard_bytes), ' ', hex(manifest.header_crc), '\n');
  return base::cat(body, "end ", hex(base::crc32c(body.data(), body.size())), '\n');
}

Manifest parse(const std::string& text, const std::string& path) {
  const auto corrupt = [&](const std::string& what) {
    return base::CorruptData(base::cat("[checkpoint] ", path, ": ", what));
  };
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  std::string magic, word;
  Manifest manifest;
  if (!(in >> magic >> manifest.format) || magic != "gear-checkpoint") {
    throw corrupt("no manifest of a GEAR checkpoint");
  }
  if (manifest.format > kCheckpointFormat) {
    throw corrupt(
        base::cat("format ", manifest.format, " is newer than format ", kCheckpointFormat,
                  ", which this version reads: load it with the version that wrote it, or "
                  "later"));
  }
  unsigned shard = 0;
  unsigned shards = 0;
  in >> word >> manifest.save >> word >> shard >> shards >> manifest.shard_file >>
      manifest.shard_bytes >> std::hex >> manifest.header_crc;
  if (!in || shard != 0 || shards != 1 || !is_shard_file(manifest.shard_file) ||
      manifest.shard_file.find('/') != std::string::npos || text != text_of(manifest)) {
    throw corrupt("torn or altered: its checksum is wrong");
  }
  return manifest;
}

}  // namespace

std::string Manifest::shard_path(const std::string& directory) const {
  return path_in(directory, shard_file);
}

Manifest read_manifest(const std::string& directory) {
  if (!base::is_directory(directory)) {
    throw base::InvalidArgument(
        base::cat("[checkpoint] ", directory, " is no directory: give the one that was saved to"));
  }
  const std::string path = path_in(directory, kName);
  if (!base::path_exists(path)) {
    throw base::CorruptData(base::cat("[checkpoint] ", directory,
                                      " holds no MANIFEST: no checkpoint was completed there"));
  }
  const base::File file = base::File::open_read(path);
  std::string text(std::min(file.size(), kMaxBytes), '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return parse(text, path);
}

PreparedDirectory prepare_directory(const std::string& directory) {
  if (!base::path_exists(directory)) {
    base::make_directory(directory);
    const fs::path parent = fs::path(directory).lexically_normal().parent_path();
    base::sync_directory(parent.empty() ? "." : parent.string());
    return {std::nullopt, true};
  }
  if (!base::is_directory(directory)) {
    throw base::InvalidArgument(
        base::cat("[checkpoint] ", directory, " is a file: give a directory to save to"));
  }
  bool found = false;
  for (const std::string& name : base::names_in(directory)) {
    found = found || name == kName;
    if (name != kName && name != kTemporary && !is_shard_file(name)) {
      throw base::InvalidArgument(
          base::cat("[checkpoint] ", directory, " holds '", name,
                    "', which is no part of a checkpoint: save to another directory"));
    }
  }
  if (!found) {
    return {};
  }
  return {read_manifest(directory), false};
}

void commit_manifest(const std::string& directory, const Manifest& manifest) {
  const std::string temporary = path_in(directory, kTemporary);
  base::remove_file(temporary);  // left by a save that was killed
  const std::string text = text_of(manifest);
  base::File file = base::File::create(temporary);
  file.write(std::as_bytes(std::span(text)));
  file.sync();
  file.close();
  base::atomic_rename(temporary, path_in(directory, kName));
}

void discard_save(const std::string& directory, const Manifest& manifest, bool made) noexcept {
  base::try_remove(path_in(directory, kTemporary));
  base::try_remove(manifest.shard_path(directory));
  if (made) {
    base::try_remove(directory);
  }
}

std::optional<std::string> tidy_directory(const std::string& directory, const Manifest& manifest) {
  try {
    base::sync_directory(directory);
    for (const std::string& name : base::names_in(directory)) {
      if (is_shard_file(name) && name != manifest.shard_file) {
        base::remove_file(path_in(directory, name));
      }
    }
  } catch (const std::exception& error) {
    return base::cat("[checkpoint] ", directory, " is saved, but older files in it could not be ",
                     "removed: ", error.what());
  }
  return std::nullopt;
}

}  // namespace gear::store
