#include "store/checkpoint/snapshot.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "base/crc32c.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/log.h"
#include "base/threads/origin.h"
#include "store/checkpoint/byte_stream.h"
#include "store/checkpoint/manifest.h"
#include "store/checkpoint/share.h"
#include "store/checkpoint/snapshot_index.h"

namespace gear::store {
namespace {

constexpr char kMagic[8] = {'G', 'E', 'A', 'R', 'S', 'H', 'R', 'D'};
constexpr uint64_t kHeaderBytes = 64;
constexpr uint64_t kPagesAlign = 4096;
constexpr uint64_t kIoBytes = 8 << 20;  // of one read or write

// header [64] | index, zeros to 4096 | used pages | CRC-32C of each used page, u32
struct Header {
  uint32_t format = 1;
  uint64_t index_bytes = 0;
  uint64_t page_bytes = 0;
  uint64_t pages_used = 0;
  uint32_t index_crc = 0;
  uint32_t page_crcs_crc = 0;

  uint64_t pages_offset() const {
    return (kHeaderBytes + index_bytes + kPagesAlign - 1) / kPagesAlign * kPagesAlign;
  }
  uint64_t crcs_offset() const { return pages_offset() + pages_used * page_bytes; }
  uint64_t file_bytes() const { return crcs_offset() + pages_used * sizeof(uint32_t); }
};

std::vector<std::byte> encode(const Header& header) {
  ByteWriter out;
  out.put_span(std::span<const char>(kMagic));
  out.put(header.format);
  out.put(uint32_t{0});
  out.put(header.index_bytes);
  out.put(header.page_bytes);
  out.put(header.pages_used);
  out.put(header.index_crc);
  out.put(header.page_crcs_crc);
  out.put(uint64_t{0});
  out.put(uint32_t{0});
  out.put(base::crc32c(out.bytes().data(), out.bytes().size()));
  return out.bytes();
}

// What the manifest keeps of a header. Not the CRC of all 64 bytes: data followed by their own CRC
// have the same CRC whatever they are.
uint32_t header_crc(const std::vector<std::byte>& encoded) {
  return base::crc32c(encoded.data(), kHeaderBytes - sizeof(uint32_t));
}

template <class... What>
[[noreturn]] void corrupt(const std::string& path, const What&... what) {
  throw base::CorruptData(base::cat("[checkpoint] ", path, what...));
}

std::string shard_path(const std::string& directory, const std::string& file) {
  return (std::filesystem::path(directory) / file).string();
}

// The file of one shard, opened and verified up to its index.
struct OpenShard {
  base::File file;
  Header header;
  SavedIndex saved;
  std::vector<uint32_t> page_crcs;
};

std::vector<std::byte> read_exactly(const base::File& file, uint64_t offset, uint64_t bytes) {
  std::vector<std::byte> data(bytes);
  const size_t got = file.read_at(offset, data);
  if (got != bytes) {
    corrupt(file.path(), " is truncated: ", bytes, " bytes expected at ", offset, ", ", got,
            " found");
  }
  return data;
}

Header read_header(const base::File& file) {
  const std::vector<std::byte> bytes = read_exactly(file, 0, kHeaderBytes);
  ByteReader in(bytes);
  char magic[8];
  in.get_into(std::span<char>(magic));
  if (std::memcmp(magic, kMagic, sizeof magic) != 0) {
    corrupt(file.path(), " is no GEAR shard file");
  }
  Header header;
  header.format = in.get<uint32_t>();
  if (header.format > kCheckpointFormat) {
    corrupt(file.path(), ": format ", header.format, " is newer than format ", kCheckpointFormat,
            ", which this version reads");
  }
  in.get<uint32_t>();
  header.index_bytes = in.get<uint64_t>();
  header.page_bytes = in.get<uint64_t>();
  header.pages_used = in.get<uint64_t>();
  header.index_crc = in.get<uint32_t>();
  header.page_crcs_crc = in.get<uint32_t>();
  const uint64_t size = file.size();
  if (encode(header) != bytes) {
    corrupt(file.path(), ": the header's checksum is wrong");
  }
  const bool fits = header.index_bytes <= size &&
                    (header.page_bytes == 0 || header.pages_used <= size / header.page_bytes);
  if (!fits || header.file_bytes() != size) {
    corrupt(file.path(), " is truncated: it has ", size,
            " bytes, and its header says another size");
  }
  return header;
}

// The file that the manifest names. A save that completes in between removes it: look again then.
OpenShard open_named_file(const std::string& directory, Manifest& manifest) {
  for (;;) {
    manifest = read_manifest(directory);
    const std::string path = shard_path(directory, manifest.shard_file);
    if (base::path_exists(path)) {
      return {base::File::open_read(path), {}, {}, {}};
    }
    if (read_manifest(directory).save == manifest.save) {
      corrupt(path, " is missing, and MANIFEST names it");
    }
  }
}

OpenShard open_shard(const std::string& directory) {
  Manifest manifest;
  OpenShard open = open_named_file(directory, manifest);
  const std::string& path = open.file.path();
  open.header = read_header(open.file);
  const uint64_t size = open.file.size();
  if (size != manifest.shard_bytes) {
    corrupt(path, " has ", size, " bytes, and MANIFEST says ", manifest.shard_bytes,
            ": it is truncated or foreign");
  }
  if (header_crc(encode(open.header)) != manifest.header_crc) {
    corrupt(path, " is not the file that MANIFEST names");
  }
  const auto index =
      read_exactly(open.file, kHeaderBytes, open.header.pages_offset() - kHeaderBytes);
  if (base::crc32c(index.data(), index.size()) != open.header.index_crc) {
    corrupt(path, ": the index's checksum is wrong");
  }
  try {
    open.saved = decode_index(std::span(index).first(open.header.index_bytes));
  } catch (const base::CorruptData& error) {  // found by code that knows no file
    corrupt(path, ": ", error.what());
  }
  const uint64_t page_bytes =
      PageLayout(Schema::parse(open.saved.schema_text), open.saved.options.page_steps).page_bytes;
  if (page_bytes != open.header.page_bytes) {
    corrupt(path, ": its pages have ", open.header.page_bytes,
            " bytes, and its schema makes pages of ", page_bytes);
  }
  const auto crcs =
      read_exactly(open.file, open.header.crcs_offset(), open.header.pages_used * sizeof(uint32_t));
  if (base::crc32c(crcs.data(), crcs.size()) != open.header.page_crcs_crc ||
      open.saved.used_pages.size() != open.header.pages_used) {
    corrupt(path, ": the page checksums are damaged");
  }
  open.page_crcs.resize(open.header.pages_used);
  ByteReader(crcs).get_into(std::span(open.page_crcs));
  return open;
}

// What a file says of the pages that it holds.
struct FileIndex {
  const std::vector<uint32_t>& pages;
  const IndexState& state;
};

std::string bad_page(const OpenShard& open, const FileIndex& of, uint64_t i) {
  const IndexState& index = of.state;
  const uint32_t p = of.pages[i];
  const Page& page = index.pages[p];
  return base::cat("[checkpoint] ", open.file.path(), ": page ", p, " at byte ",
                   open.header.pages_offset() + i * open.header.page_bytes, " (episode ",
                   index.episodes[page.episode].uid, ", steps ", page.first_step, " to ",
                   page.first_step + page.rows - 1, ") is damaged: its checksum is wrong");
}

// How many of the pages from the i-th on lie behind each other in the region, fit one transfer and
// take part in it: joins(k).
template <class Joins>
uint64_t run_length(const std::vector<uint32_t>& pages, uint64_t i, uint64_t page_bytes,
                    const Joins& joins) {
  const uint64_t limit = std::max<uint64_t>(1, kIoBytes / page_bytes);
  uint64_t n = 1;
  while (n < limit && i + n < pages.size() && pages[i + n] == pages[i] + n && joins(i + n)) {
    ++n;
  }
  return n;
}

// A page whose last rows are not written: a writer may be filling them without the lock, so the
// file gets a copy in which they are zero.
void copy_partial_page(const Shard& shard, const std::byte* page, uint32_t rows,
                       std::vector<std::byte>& copy) {
  const PageLayout& layout = shard.layout();
  copy.assign(layout.page_bytes, std::byte{0});
  for (size_t c = 0; c < layout.step_bytes.size(); ++c) {
    std::memcpy(copy.data() + layout.column_offset[c], page + layout.column_offset[c],
                rows * layout.step_bytes[c]);
  }
}

// Pages of a region as the host reads and writes them: in place, or on their way through a buffer.
class PageAccess {
 public:
  explicit PageAccess(Shard& shard)
      : region_(shard.region()), page_bytes_(shard.layout().page_bytes) {}

  // `count` pages from `page` on; valid until the next call.
  const std::byte* read(uint32_t page, uint64_t count) {
    const std::byte* const pages = space(page, count);
    if (!region_.host_accessible()) {
      region_.read(page * page_bytes_, buffer_);
    }
    return pages;
  }

  // Where to put `count` pages that commit() then takes to `page`.
  std::byte* space(uint32_t page, uint64_t count) {
    if (region_.host_accessible()) {
      return region_.data() + page * page_bytes_;
    }
    buffer_.resize(count * page_bytes_);
    return buffer_.data();
  }

  void commit(uint32_t page) {
    if (!region_.host_accessible()) {
      region_.write(page * page_bytes_, buffer_);
    }
  }

 private:
  memory::Region& region_;
  uint64_t page_bytes_;
  std::vector<std::byte> buffer_;
};

std::vector<uint32_t> write_pages(Shard& shard, const std::vector<uint32_t>& pages,
                                  base::File& file) {
  const uint64_t page_bytes = shard.layout().page_bytes;
  std::vector<uint32_t> crcs;
  crcs.reserve(pages.size());
  std::vector<std::byte> copy;
  PageAccess access(shard);
  for (uint64_t i = 0; i < pages.size();) {
    const auto is_full = [&](uint64_t k) {
      return shard.index().page(pages[k]).rows == shard.layout().page_steps;
    };
    const uint64_t count = is_full(i) ? run_length(pages, i, page_bytes, is_full) : 1;
    const std::byte* data = access.read(pages[i], count);
    if (!is_full(i)) {
      copy_partial_page(shard, data, shard.index().page(pages[i]).rows, copy);
      data = copy.data();
    }
    for (uint64_t k = 0; k < count; ++k) {
      crcs.push_back(base::crc32c(data + k * page_bytes, page_bytes));
    }
    file.write({data, count * page_bytes});
    i += count;
  }
  return crcs;
}

void write_shard_file(Shard& shard, std::span<const KeptUpdate> kept, base::File& file,
                      Manifest& manifest) {
  std::vector<std::byte> index = encode_index(shard, kept);
  const std::vector<uint32_t> pages = used_pages(shard.index().state());
  Header header;
  header.format = manifest.format = format_of(shard.index().state(), kept);
  header.index_bytes = index.size();
  header.page_bytes = shard.layout().page_bytes;
  header.pages_used = pages.size();
  index.resize(header.pages_offset() - kHeaderBytes);
  header.index_crc = base::crc32c(index.data(), index.size());
  file.write(std::vector<std::byte>(kHeaderBytes));  // the true header comes last
  file.write(index);
  const std::vector<uint32_t> crcs = write_pages(shard, pages, file);
  file.write(std::as_bytes(std::span(crcs)));
  header.page_crcs_crc = base::crc32c(crcs.data(), crcs.size() * sizeof(uint32_t));
  const std::vector<std::byte> encoded = encode(header);
  file.write_at(0, encoded);
  manifest.shard_bytes = header.file_bytes();
  manifest.header_crc = header_crc(encoded);
}

// `count` pages of a file from its `nth` on, checked.
void read_pages(const OpenShard& open, const FileIndex& of, uint64_t nth, uint64_t count,
                std::byte* data) {
  const uint64_t page_bytes = open.header.page_bytes;
  const uint64_t offset = open.header.pages_offset() + nth * page_bytes;
  if (open.file.read_at(offset, {data, count * page_bytes}) != count * page_bytes) {
    corrupt(open.file.path(), " is truncated at byte ", offset);
  }
  for (uint64_t k = 0; k < count; ++k) {
    if (base::crc32c(data + k * page_bytes, page_bytes) != open.page_crcs[nth + k]) {
      throw base::CorruptData(bad_page(open, of, nth + k));
    }
  }
}

// With the pages' bytes still to come.
std::shared_ptr<Shard> make_shard(SavedIndex&& saved, memory::TierChoice tier,
                                  const std::string& name, uint32_t owner) {
  ShardOptions options;
  options.page_steps = saved.options.page_steps;
  options.capacity = saved.options.num_slots();
  options.tier = tier.tier;
  options.device = tier.device;
  options.name = name;
  options.evict = saved.options.evict;
  options.max_times_sampled = saved.options.max_times_sampled;
  options.owner = owner;
  options.rate_limiter = saved.rate_limiter;
  return base::make_shared_here<Shard>(Schema::parse(saved.schema_text), options,
                                       std::move(saved.index));
}

}  // namespace

void save_shard(Shard& shard, const std::string& directory, std::span<const KeptUpdate> kept) {
  shard.check_process("save");
  auto lock = shard.lock();
  while (!shard.settle(lock) && !shard.mirrors().settled()) {
    lock.unlock();
    lock = shard.lock_between_draws();
  }
  shard.flush_rows();
  shard.wait_rows();
  const PreparedDirectory prepared = prepare_directory(directory);
  Manifest manifest;
  manifest.save = prepared.previous ? prepared.previous->save + 1 : 1;
  manifest.shard_file = base::cat("shard-0-of-1.", std::to_string(manifest.save), ".gear");
  const std::string path = shard_path(directory, manifest.shard_file);
  base::remove_file(path);  // left by a save that was killed
  try {
    base::File file = base::File::create(path);
    write_shard_file(shard, kept, file, manifest);
    file.sync();
    file.close();
    base::sync_directory(directory);
    commit_manifest(directory, manifest);
  } catch (...) {
    discard_save(directory, manifest, prepared.made);
    throw;
  }
  // Under the lock, which orders the saves of this buffer into one directory; its sink may want the
  // lock, and logs behind it.
  const std::optional<std::string> untidy = tidy_directory(directory, manifest);
  lock.unlock();
  if (untidy) {
    base::log(base::Level::kWarning, *untidy);
  }
}

LoadedShard load_shard(const std::string& directory, memory::TierChoice tier,
                       const std::string& name, uint32_t owner) {
  OpenShard open = open_shard(directory);
  const std::vector<uint32_t> pages = open.saved.used_pages;
  const std::vector<KeptUpdate> kept_updates = open.saved.kept_updates;
  const auto shard = make_shard(std::move(open.saved), tier, name, owner);
  const FileIndex index{pages, shard->index().state()};
  PageAccess access(*shard);
  for (uint64_t i = 0; i < pages.size();) {
    const uint64_t count =
        run_length(pages, i, open.header.page_bytes, [](uint64_t) { return true; });
    read_pages(open, index, i, count, access.space(pages[i], count));
    access.commit(pages[i]);
    i += count;
  }
  return {shard, kept_updates};
}

std::shared_ptr<Shard> load_share(const std::vector<std::string>& directories,
                                  memory::TierChoice tier, const std::string& name, uint32_t rank,
                                  uint32_t size) {
  std::vector<OpenShard> opened;
  std::vector<SavedIndex> parts;
  for (const std::string& directory : directories) {
    opened.push_back(open_shard(directory));
    parts.push_back(std::move(opened.back().saved));
  }
  apply_kept_updates(parts);
  Share share = share_of(parts, rank, size);
  const std::vector<uint32_t> pages = share.saved.used_pages;
  const auto shard = make_shard(std::move(share.saved), tier, name, rank);
  PageAccess access(*shard);
  for (uint64_t i = 0; i < pages.size();) {
    const Share::Origin from = share.origins[i];
    const OpenShard& open = opened[from.part];
    const uint64_t count = run_length(pages, i, open.header.page_bytes, [&](uint64_t k) {
      return share.origins[k].part == from.part && share.origins[k].nth == from.nth + (k - i);
    });
    const SavedIndex& part = parts[from.part];
    read_pages(open, {part.used_pages, part.index.state}, from.nth, count,
               access.space(pages[i], count));
    access.commit(pages[i]);
    i += count;
  }
  return shard;
}

CheckpointInfo inspect_checkpoint(const std::string& directory) {
  const OpenShard open = open_shard(directory);
  const Schema schema = Schema::parse(open.saved.schema_text);
  CheckpointInfo info;
  info.format = open.header.format;
  info.schema_text = open.saved.schema_text;
  info.schema_hash = schema.hash();
  info.step_bytes = schema.step_bytes();
  info.page_steps = open.saved.options.page_steps;
  info.pages = open.saved.options.num_pages;
  info.pages_used = open.header.pages_used;
  info.steps = open.saved.index.state.num_steps;
  info.episodes = open.saved.index.state.num_episodes;
  info.bytes = open.file.size();
  std::vector<std::byte> page(open.header.pages_used > 0 ? open.header.page_bytes : 0);
  for (uint64_t i = 0; i < open.header.pages_used; ++i) {
    const uint64_t offset = open.header.pages_offset() + i * page.size();
    if (open.file.read_at(offset, page) != page.size() ||
        base::crc32c(page.data(), page.size()) != open.page_crcs[i]) {
      info.errors.push_back(bad_page(open, {open.saved.used_pages, open.saved.index.state}, i));
    }
  }
  return info;
}

}  // namespace gear::store
