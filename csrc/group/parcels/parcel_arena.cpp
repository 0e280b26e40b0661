#include "group/parcels/parcel_arena.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/threads/fence.h"
#include "transport/typed.h"

namespace gear::group {
namespace {

constexpr uint64_t kAlign = 64;  // a cache line

uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

ParcelArena::ParcelArena(transport::Transport& data)
    : data_(data),
      arena_(memory::make_region(memory::Tier::kHost, kLeastBytes)),
      notes_(data.size()),
      arrived_(data.size()) {}

std::byte* ParcelArena::place(uint32_t consumer, uint64_t bytes) {
  const uint64_t end = used_ + aligned(bytes);
  if (end > arena_->bytes()) {
    grow(end);
  }
  notes_[consumer] = {used_, bytes, 0};
  return arena_->data() + std::exchange(used_, end);
}

std::span<const transport::ConstBytes> ParcelArena::fetch(std::span<const uint64_t> bytes) {
  for (Note& note : notes_) {
    note.arena_bytes = arena_->bytes();
  }
  base::store_fence();  // the rows, before what says that they are there
  const std::vector<Note> notes = transport::alltoall(data_, notes_);
  expose(std::ranges::max(notes, {}, &Note::arena_bytes).arena_bytes);
  reads_.clear();
  uint64_t landed_bytes = 0;
  for (uint32_t o = 0; o < notes.size(); ++o) {
    const Note& note = notes[o];
    if (o == data_.rank()) {
      continue;
    }
    if (note.bytes != bytes[o] || note.bytes > note.arena_bytes ||
        note.begin > note.arena_bytes - note.bytes) {
      throw base::TransportError(
          base::cat("[transport] rank ", o, " has packed ", note.bytes, " bytes of rows for rank ",
                    data_.rank(), " at ", note.begin, " of ", note.arena_bytes, ", and ", bytes[o],
                    " are to come: ranks of one group must run the same build"));
    }
    if (note.bytes > 0) {
      reads_.push_back({o, note.begin, note.bytes, landed_bytes});
      landed_bytes += aligned(note.bytes);
    }
  }
  std::ranges::fill(arrived_, transport::ConstBytes{});
  if (!reads_.empty()) {
    const transport::ConstBytes landed = reader_->read(reads_, landed_bytes);
    for (const transport::RemoteRead& one : reads_) {
      arrived_[one.owner] = landed.subspan(one.to, one.bytes);
    }
  }
  // From here on the owners may pack the next batch's rows over these.
  static_cast<void>(transport::allgather(data_, uint8_t{1}));
  std::ranges::fill(notes_, Note{});
  used_ = 0;
  return arrived_;
}

void ParcelArena::grow(uint64_t bytes) {
  auto larger = memory::make_region(memory::Tier::kHost, std::bit_ceil(bytes));
  std::memcpy(larger->data(), arena_->data(), used_);
  std::swap(arena_, larger);
  if (!former_) {
    former_ = std::move(larger);
  }
}

// Where arenas of so many bytes are not those that the ranks read.
void ParcelArena::expose(uint64_t arena_bytes) {
  if (arena_bytes == exposed_bytes_) {
    return;
  }
  if (arena_bytes > arena_->bytes()) {
    grow(arena_bytes);
  }
  const transport::Bytes memory(arena_->data(), arena_->bytes());
  if (exposed_) {
    exposed_->renew(memory);
  } else if ((exposed_ = data_.expose(memory))) {
    reader_ = exposed_->connect(data_);
  } else {
    throw base::TransportError(base::cat(
        "[transport] the ranks cannot register memory for rows that they pack, ", arena_->bytes(),
        " bytes here: raise the limit (ulimit -l), or set GEAR_PACK_BELOW=0 on every rank"));
  }
  former_.reset();
  exposed_bytes_ = arena_bytes;
}

}  // namespace gear::group
