#include "store/index/index_publisher.h"

#include <atomic>
#include <bit>
#include <utility>

#include "base/errors.h"
#include "base/threads/fence.h"

namespace gear::store {
namespace {

std::atomic_ref<uint64_t> word_at(memory::Region& memory, uint64_t place) {
  return std::atomic_ref(*reinterpret_cast<uint64_t*>(memory.data() + place));
}

}  // namespace

IndexPublisher::IndexPublisher(Index& index, std::shared_ptr<memory::Region> memory)
    : index_(index),
      offer_(index.steps(0)),
      memory_(std::move(memory)),
      layout_(index.options().num_pages),
      log_(index.options().num_pages, index.options().page_steps) {
  GEAR_CHECK(memory_->bytes() >= layout_.bytes);
  const auto pages = static_cast<uint32_t>(index.options().num_pages);
  for (uint32_t number = pages; number-- > 0;) {
    free_.push_back(number);
  }
  offer_->attach(log_);
  for (uint32_t page = 0; page < pages; ++page) {
    publish_page(page);
  }
  base::full_fence();
}

IndexPublisher::~IndexPublisher() { offer_->detach(log_); }

void IndexPublisher::publish() {
  if (log_.empty()) {
    return;
  }
  base::store_fence();  // the rows, before what says that they are there
  for (const uint32_t e : log_.episodes()) {
    give_back(e);
  }
  for (const uint32_t e : log_.episodes()) {
    if (index_.episode(e).head != kNone) {
      publish_episode(e, entry_of(e));
    }
  }
  for (const ChangeLog::PageChange& change : log_.pages()) {
    publish_page(change.page);
  }
  log_.clear();
  base::full_fence();
}

// Every episode that has an entry has a page, so that there are entries enough.
void IndexPublisher::give_back(uint32_t e) {
  if (e >= entries_.size() || entries_[e].uid == 0) {
    return;
  }
  const Episode& episode = index_.episode(e);
  if (episode.uid != entries_[e].uid || episode.head == kNone) {
    free_.push_back(std::exchange(entries_[e], {}).number);
  }
}

uint32_t IndexPublisher::entry_of(uint32_t e) {
  if (e >= entries_.size()) {
    entries_.resize(index_.state().episodes.size());
  }
  Entry& entry = entries_[e];
  if (entry.uid == 0) {
    GEAR_CHECK(!free_.empty());
    entry = {index_.episode(e).uid, free_.back()};
    free_.pop_back();
    publish_episode(e, entry.number);
  }
  return entry.number;
}

void IndexPublisher::publish_episode(uint32_t e, uint32_t entry) {
  const Episode& episode = index_.episode(e);
  write(layout_.episode(entry),
        PublishedEpisode{episode.uid, episode.begin, episode.end, episode.closing_columns,
                         static_cast<uint64_t>(episode.state), 0});
}

void IndexPublisher::publish_page(uint32_t p) {
  const Page& page = index_.page(p);
  set_mass(p, offer_->counts()[p]);
  PublishedPage out;
  out.generation = page.generation;
  if (page.episode != kNone) {
    out.entry = entry_of(page.episode);
    out.previous = page.previous;
    out.next = page.next;
    out.uid = index_.episode(page.episode).uid;
    out.first_step = page.first_step;
  }
  write(layout_.page(p), out);
}

void IndexPublisher::set_mass(uint32_t page, uint64_t mass) {
  const uint64_t before =
      word_at(*memory_, layout_.levels[0].begin + page * sizeof(uint64_t)).load();
  if (before == mass) {
    return;
  }
  uint64_t node = page;
  for (const PublishedLayout::Level& level : layout_.levels) {
    const auto word = word_at(*memory_, level.begin + node * sizeof(uint64_t));
    word.store(word.load(std::memory_order_relaxed) + (mass - before), std::memory_order_release);
    node /= PublishedLayout::kFanout;
  }
}

template <class Record>
void IndexPublisher::write(uint64_t place, Record record) {
  record.seal = seal_of(record);
  for (const uint64_t word : std::bit_cast<WordsOf<Record>>(record)) {
    word_at(*memory_, place).store(word, std::memory_order_release);
    place += sizeof(uint64_t);
  }
}

}  // namespace gear::store
