#include "store/checkpoint/shard_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/files/crc32c.h"
#include "store/checkpoint/byte_stream.h"

namespace gear::store {
namespace {

using Header = ShardFile::Header;

constexpr char kMagic[8] = {'G', 'E', 'A', 'R', 'S', 'H', 'R', 'D'};
constexpr uint64_t kHeaderBytes = 64;
constexpr uint64_t kPagesAlign = 4096;
constexpr uint64_t kIoBytes = 8 << 20;  // of one read or write

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
  const bool fits = header.index_bytes <= size && header.page_bytes > 0 &&
                    header.pages_used <= size / header.page_bytes;
  if (!fits || header.file_bytes() != size) {
    corrupt(file.path(), " is truncated: it has ", size,
            " bytes, and its header says another size");
  }
  return header;
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

}  // namespace

uint64_t ShardFile::Header::pages_offset() const {
  return (kHeaderBytes + index_bytes + kPagesAlign - 1) / kPagesAlign * kPagesAlign;
}

void ShardFile::write(Shard& shard, std::span<const KeptUpdate> kept, base::File& file,
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

ShardFile ShardFile::open(const std::string& directory) {
  // A save that completes meanwhile removes the file: look again then.
  for (;;) {
    const Manifest manifest = read_manifest(directory);
    const std::string path = manifest.shard_path(directory);
    if (base::path_exists(path)) {
      return {base::File::open_read(path), manifest};
    }
    if (read_manifest(directory).save == manifest.save) {
      corrupt(path, " is missing, and MANIFEST names it");
    }
  }
}

ShardFile::ShardFile(base::File file, const Manifest& manifest)
    : file_(std::move(file)), header_(read_header(file_)), page_crcs_(header_.pages_used) {
  const std::string& path = file_.path();
  if (file_.size() != manifest.shard_bytes) {
    corrupt(path, " has ", file_.size(), " bytes, and MANIFEST says ", manifest.shard_bytes,
            ": it is truncated or foreign");
  }
  if (header_crc(encode(header_)) != manifest.header_crc) {
    corrupt(path, " is not the file that MANIFEST names");
  }
  const auto crcs =
      read_exactly(file_, header_.crcs_offset(), header_.pages_used * sizeof(uint32_t));
  if (base::crc32c(crcs.data(), crcs.size()) != header_.page_crcs_crc) {
    corrupt(path, ": the page checksums are damaged");
  }
  ByteReader(crcs).get_into(std::span(page_crcs_));
}

SavedIndex ShardFile::read_index() const {
  const std::string& path = file_.path();
  const auto bytes = read_exactly(file_, kHeaderBytes, header_.pages_offset() - kHeaderBytes);
  if (base::crc32c(bytes.data(), bytes.size()) != header_.index_crc) {
    corrupt(path, ": the index's checksum is wrong");
  }
  SavedIndex saved;
  uint64_t page_bytes = 0;
  try {  // what is found by code that knows no file
    saved = decode_index(std::span(bytes).first(header_.index_bytes));
    page_bytes = PageLayout(Schema::parse(saved.schema_text), saved.options.page_steps).page_bytes;
  } catch (const base::CorruptData& error) {
    corrupt(path, ": ", error.what());
  } catch (const base::InvalidArgument& error) {
    corrupt(path, ": ", error.what());
  }
  if (page_bytes != header_.page_bytes) {
    corrupt(path, ": its pages have ", header_.page_bytes, " bytes, and its schema makes pages of ",
            page_bytes);
  }
  const uint64_t pages = used_pages(saved.state).size();
  if (pages != header_.pages_used) {
    corrupt(path, ": it has ", header_.pages_used, " pages, and its index uses ", pages);
  }
  return saved;
}

void ShardFile::read_pages(uint64_t nth, uint64_t count, std::byte* data,
                           const IndexState& state) const {
  const uint64_t page_bytes = header_.page_bytes;
  const uint64_t offset = header_.pages_offset() + nth * page_bytes;
  if (file_.read_at(offset, {data, count * page_bytes}) != count * page_bytes) {
    corrupt(file_.path(), " is truncated at byte ", offset);
  }
  for (uint64_t k = 0; k < count; ++k) {
    if (base::crc32c(data + k * page_bytes, page_bytes) != page_crcs_[nth + k]) {
      throw base::CorruptData(damage(nth + k, used_pages(state)[nth + k], state));
    }
  }
}

std::vector<std::string> ShardFile::damages(const IndexState& state) const {
  std::vector<std::string> found;
  const std::vector<uint32_t> pages = used_pages(state);
  std::vector<std::byte> page(header_.pages_used > 0 ? header_.page_bytes : 0);
  for (uint64_t nth = 0; nth < header_.pages_used; ++nth) {
    if (file_.read_at(header_.pages_offset() + nth * page.size(), page) != page.size() ||
        base::crc32c(page.data(), page.size()) != page_crcs_[nth]) {
      found.push_back(damage(nth, pages[nth], state));
    }
  }
  return found;
}

std::string ShardFile::damage(uint64_t nth, uint32_t p, const IndexState& state) const {
  const Page& page = state.pages[p];
  return base::cat("[checkpoint] ", file_.path(), ": page ", p, " at byte ",
                   header_.pages_offset() + nth * header_.page_bytes, " (episode ",
                   state.episodes[page.episode].uid, ", steps ", page.first_step, " to ",
                   page.first_step + page.rows - 1, ") is damaged: its checksum is wrong");
}

void fill_pages(Shard& shard, const std::function<SavedPage(uint64_t i)>& from) {
  const std::vector<uint32_t> pages = used_pages(shard.index().state());
  PageAccess access(shard);
  for (uint64_t i = 0; i < pages.size();) {
    const SavedPage first = from(i);
    const auto follows = [&](uint64_t k) {
      const SavedPage next = from(k);
      return &next.file == &first.file && next.nth == first.nth + (k - i);
    };
    const uint64_t count = run_length(pages, i, shard.layout().page_bytes, follows);
    first.file.read_pages(first.nth, count, access.space(pages[i], count), first.state);
    access.commit(pages[i]);
    i += count;
  }
}

}  // namespace gear::store
