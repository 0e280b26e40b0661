#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/threads/thread_pool.h"
#include "plan/packed_rows.h"
#include "plan/plan.h"
#include "store/read_tickets.h"
#include "transport/transport.h"

namespace gear::group {

/// What a rank sends another of a batch.
struct Parcel {
  uint64_t items = 0;
  std::vector<std::byte> bytes;   ///< as ParcelWriter makes them
  plan::Plan plan;                ///< of the rows that go with it
  plan::PackedRows rows;          ///< and how they lie; none where the other reads them by pointer
  transport::ConstBytes message;  ///< in place of `bytes`, where it is not empty: rows and all
};

/// One rank's part in a batch that all draw.
struct DrawnBatch {
  uint64_t items = 0;            ///< of the batch that this rank receives
  std::vector<Parcel> parcels;   ///< by consumer
  std::vector<uint8_t> targets;  ///< by consumer: 1 where its parcel is sent; as Deal has them
  std::vector<uint8_t> sources;  ///< by owner: 1 where a parcel comes from it
  float least = 0;               ///< as those of select::GroupDraw
  double beta = 0;
  uint64_t room = 0;  ///< for GroupMover::make_room
  store::Read read;   ///< of this rank's pages
};

/// What an owner tells a consumer of the items of its batch that lie in the owner's shard: ids,
/// probabilities, places in the batch, and for each window how many steps of each item there are,
/// where they go, and from where they are to be read:
///
///   mapped   the runs (page, row, count) in the owner's pages, which the consumer reads by pointer
///   packed   nothing: the rows themselves are sent, as PackedRows says, item by item
///
/// The bytes are for processes of one build on machines of one byte order, not for storage.
class ParcelWriter {
 public:
  /// Items of a part: see ParcelParts.
  static constexpr uint32_t kPartItems = 4096;

  ParcelWriter(const plan::BatchLayout& layout, const store::PageLayout& pages,
               uint32_t part_items = kPartItems);

  /// Items `which` (positions in `selection`), item which[i] going to places[i] of the consumer's
  /// batch; places ascend. Under the shard's lock. Replaces `bytes`. Unless `mapped`, fills `rows`,
  /// whose runs pack the rows (Run::target: row of the window), and returns how they lie then;
  /// otherwise, and without items, `rows` is empty and none are packed.
  plan::PackedRows write(const store::Index& index, const select::Selection& selection,
                         std::span<const uint32_t> which, std::span<const uint32_t> places,
                         bool mapped, std::vector<std::byte>& bytes, plan::Plan& rows) const;
  /// That a parcel of so many items has at most, without rows.
  uint64_t most_bytes(uint64_t items) const;

 private:
  uint64_t most_runs(const plan::BatchLayout::SharedWindow& shared, uint64_t items) const;
  /// Of what comes before the runs.
  uint64_t front_bytes(uint64_t items) const;

  const plan::BatchLayout& layout_;
  const store::PageLayout& pages_;
  uint32_t part_items_;
  uint64_t deriving_windows_;
  base::ThreadPool& pool_;
};

/// Room for the parcel's rows behind its bytes: they travel with it, as its message, which is in
/// `message` until that changes.
std::byte* room_behind(Parcel& parcel, std::vector<std::byte>& message);
/// Where else its consumer finds them: ParcelHeader::rows_at.
void put_rows_at(Parcel& parcel, uint64_t place);

/// Sends the parcels of a drawn batch to their consumers and returns this rank's, by owner, empty
/// where none comes: they stay until the next exchange of `data`, and the own one as long as
/// `batch`. Collective over `data`.
std::span<const transport::ConstBytes> exchange_parcels(transport::Transport& data,
                                                        const DrawnBatch& batch);

}  // namespace gear::group
