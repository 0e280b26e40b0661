#pragma once

#include <cstdint>
#include <vector>

#include "group/pull/published_masses.h"
#include "group/pull/published_shards.h"

namespace gear::group {

/// The steps that may be drawn, found by reading all pages of all owners once. PublishedMasses
/// counts all steps of a page, among them those of open episodes whose windows are not complete:
/// where these are almost all, draws by masses fall on them and say nothing of what is left.
class PublishedSteps {
 public:
  /// `shards` is the caller's and outlives it. `page_steps`: of all shards; `lookahead`: steps that
  /// follow one of an open episode before it may be drawn.
  PublishedSteps(PublishedShards& shards, uint64_t page_steps, uint64_t lookahead)
      : shards_(shards), page_steps_(page_steps), lookahead_(lookahead) {}

  /// Reads some hundred bytes a page that holds steps. Throws TransportError; base::check_stopped()
  /// may end it.
  void look();

  /// Steps that may be drawn, as read.
  uint64_t count() const { return runs_.empty() ? 0 : runs_.back().end; }
  /// Whether every page was read whole, so that there were no others.
  bool read_all() const { return read_all_; }
  /// Of `target` < count().
  PublishedPlace at(uint64_t target) const;

 private:
  /// Steps of one page, which follow each other.
  struct Run {
    uint64_t end;  ///< of all runs up to this one, laid end to end
    PublishedPlace last;
  };
  using Part = PublishedShards::Part;

  void look(uint32_t owner, uint64_t first_page, uint64_t num_pages);

  PublishedShards& shards_;
  uint64_t page_steps_;
  uint64_t lookahead_;
  std::vector<Run> runs_;
  bool read_all_ = false;
};

}  // namespace gear::group
