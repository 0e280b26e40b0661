#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/files/file.h"
#include "store/checkpoint/manifest.h"
#include "store/checkpoint/snapshot_index.h"

namespace gear::store {

/// The file of one saved shard (docs/format.md):
///
///     header [64] | index, zeros to 4096 | used pages | CRC-32C of each used page, u32
///
/// What reads it throws CorruptData naming the file and what is wrong with it, and may be called
/// from any thread.
class ShardFile {
 public:
  struct Header {
    uint32_t format = 1;
    uint64_t index_bytes = 0;
    uint64_t page_bytes = 0;
    uint64_t pages_used = 0;
    uint32_t index_crc = 0;
    uint32_t page_crcs_crc = 0;

    uint64_t pages_offset() const;
    uint64_t crcs_offset() const { return pages_offset() + pages_used * page_bytes; }
    uint64_t file_bytes() const { return crcs_offset() + pages_used * sizeof(uint32_t); }
  };

  /// Writes the shard to a fresh file, and what a manifest says of it. Under the shard's lock, with
  /// the pages' rows where the region has them; `kept`: what this rank has yet to tell the others.
  static void write(Shard& shard, std::span<const KeptUpdate> kept, base::File& file,
                    Manifest& manifest);

  /// The file that the directory's MANIFEST names. Throws as read_manifest(), too.
  static ShardFile open(const std::string& directory);

  const Header& header() const { return header_; }
  uint64_t bytes() const { return file_.size(); }

  SavedIndex read_index() const;
  /// `count` pages from the `nth` on. `state`: of the file's index, for what an error says.
  void read_pages(uint64_t nth, uint64_t count, std::byte* data, const IndexState& state) const;
  /// Which of its pages are not as they were written, in words.
  std::vector<std::string> damages(const IndexState& state) const;

 private:
  ShardFile(base::File file, const Manifest& manifest);

  // Of the `nth` page, which is `page` of the index.
  std::string damage(uint64_t nth, uint32_t page, const IndexState& state) const;

  base::File file_;
  Header header_;
  std::vector<uint32_t> page_crcs_;
};

/// The `nth` page of a file with this index.
struct SavedPage {
  const ShardFile& file;
  const IndexState& state;
  uint64_t nth;
};

/// Fills the pages that the shard uses, the i-th in saving order by from(i).
void fill_pages(Shard& shard, const std::function<SavedPage(uint64_t i)>& from);

}  // namespace gear::store
