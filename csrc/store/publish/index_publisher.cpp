#include "store/publish/index_publisher.h"

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
      drawable_(index.steps(0)),
      memory_(std::move(memory)),
      layout_(index.options().num_pages),
      reader_(index.dirty()) {
  GEAR_CHECK(memory_->bytes() >= layout_.bytes);
  publish();
}

void IndexPublisher::publish() {
  if (reader_.nothing_new()) {
    return;
  }
  pages_.clear();
  episodes_.clear();
  reader_.take(index_.state().episodes.size(), pages_, episodes_);
  base::store_fence();  // the rows, before what says that they are there
  for (const uint32_t e : episodes_) {
    publish_episode(e);
  }
  for (const uint32_t p : pages_) {
    publish_page(p);
  }
  base::full_fence();
}

void IndexPublisher::publish_episode(uint32_t e) {
  const Episode& episode = index_.episode(e);
  write(layout_.episode(e),
        PublishedEpisode{episode.uid, episode.begin, episode.end, episode.closing_columns,
                         static_cast<uint64_t>(episode.state), 0});
}

void IndexPublisher::publish_page(uint32_t p) {
  const Page& page = index_.page(p);
  set_mass(p, drawable_->counts()[p]);
  PublishedPage out;
  out.generation = page.generation;
  if (page.episode != kNone) {
    out.episode = page.episode;
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
