#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "group/peers/peers.h"

namespace gear::group {

/// How far the ranks of a node have read: their gathers read each other's pages by pointer, and a
/// page may be written again only when all of them have passed it.
class ReadBoard {
 public:
  /// Collective over `control`.
  ReadBoard(const Peers& peers, uint64_t loader, transport::Transport& control);

  /// This rank has read all that it will of batches below `number`.
  void passed(uint64_t number);
  /// The word that passed() sets, for kernels of GPU `device` that set it instead.
  uint64_t* passed_by_gpu(int device);
  /// Whether `rank`, of the same node, has; also once it has ended.
  bool has_passed(uint32_t rank, uint64_t number) const noexcept;
  /// Whether the process of `rank` has.
  bool has_ended(uint32_t rank) const noexcept;
  /// Throws TransportError naming those of `readers` that have not passed `number`, where a writer
  /// has waited for them longer than the group's time-out.
  void check_waited(std::span<const uint32_t> readers, uint64_t number,
                    std::chrono::duration<double> time) const;

 private:
  /// The process of a rank.
  struct Reader {
    memory::ProcessIdentity process;
    std::atomic<bool> ended{false};     ///< once seen, for good
    std::atomic<int64_t> look_from{0};  ///< when to look again: nanoseconds of the steady clock
  };

  std::vector<std::unique_ptr<memory::Region>> counters_;  ///< by rank; null: of another node
  mutable std::vector<Reader> readers_;                    ///< by rank
  uint32_t rank_;
  double timeout_s_;
};

/// When the ranks that a batch goes to have read the pages that it shows.
class ReadersEnd final : public store::ReadEnd {
 public:
  ReadersEnd(std::shared_ptr<const ReadBoard> board, uint64_t number, std::vector<uint32_t> readers)
      : board_(std::move(board)), number_(number), readers_(std::move(readers)) {}

  bool done() const noexcept override;
  void waited(std::chrono::duration<double> time) const override {
    board_->check_waited(readers_, number_ + 1, time);
  }

 private:
  std::shared_ptr<const ReadBoard> board_;
  uint64_t number_;
  std::vector<uint32_t> readers_;
};

}  // namespace gear::group
