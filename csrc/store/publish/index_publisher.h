#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "memory/region.h"
#include "store/index/index.h"
#include "store/publish/published_index.h"

namespace gear::store {

/// Keeps what is published of an index up to date: see published_index.h. Under the shard's lock.
///
/// Cost: an append sets three or four words and one record; a page that changes hands two records.
class IndexPublisher {
 public:
  /// Publishes all of `index`, which outlives it, into `memory`, which is as large as
  /// PublishedLayout says and zero.
  IndexPublisher(Index& index, std::shared_ptr<memory::Region> memory);
  IndexPublisher(const IndexPublisher&) = delete;
  IndexPublisher& operator=(const IndexPublisher&) = delete;

  /// Publishes what has changed since. Readers see it before anything that is written afterwards:
  /// a page is given up here before other steps are written into it. Not in a forked child: it has
  /// a copy of the index, but the memory is its parent's (Shard::check_process).
  void publish();

  uint64_t bytes() const { return layout_.bytes; }

 private:
  void publish_episode(uint32_t episode);
  void publish_page(uint32_t page);
  void set_mass(uint32_t page, uint64_t mass);
  template <class Record>
  void write(uint64_t place, Record record);

  Index& index_;
  std::shared_ptr<Drawable> drawable_;
  std::shared_ptr<memory::Region> memory_;
  PublishedLayout layout_;
  Dirty::Reader reader_;
  std::vector<uint32_t> pages_;  // that changed
  std::vector<uint32_t> episodes_;
};

}  // namespace gear::store
