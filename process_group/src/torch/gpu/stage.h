#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "schedule/schedule.h"
#include "torch/gpu/copier.h"

namespace gear::process_group {

/// The memory of the host through which the tensors of one operation go that are on a GPU: as large
/// as they are, page-locked, and kept by torch for later operations. It is copied in pieces, in the
/// order in which schedules need them, while earlier pieces travel.
///
///     GPU --copy_in--> host --messages--> host --copy_out--> GPU
///
/// Made, filled and begun by the thread that calls the operation; after that Staging's rules hold.
class Stage final : public Staging {
 public:
  Stage(at::Device device, std::unique_ptr<Copier> copier)
      : device_(device), copier_(std::move(copier)) {}

  at::Device device() const noexcept { return device_; }
  /// For operations that copy by themselves, instead of add().
  Copier& copier() noexcept { return *copier_; }

  /// Stands for the bytes of a dense tensor. `comes`: the operation reads them; `leaves`: it writes
  /// them all.
  Block add(const at::Tensor& dense, bool comes, bool leaves);
  /// Asks for all that comes, once, after what the caller's stream has been given.
  void begin(const std::vector<Schedule>& schedules, uint64_t piece_bytes);

  bool has_come(const std::byte* bytes, uint64_t length) override;
  bool have_all_come() override;
  void leave(const std::byte* bytes, uint64_t length) override;

  /// All is in the memory of the host: what has not left, leaves, then each first of `copies` is
  /// copied to its second. The memory of the host is given up.
  void finish(const std::vector<std::pair<at::Tensor, at::Tensor>>& copies);
  /// After finish(): whether all of it is in the GPU's memory.
  bool is_finished() const { return !end_ || end_->reached(); }
  /// After finish(): what the caller's stream is given from here on finds the outputs.
  void hold_caller() const;
  /// After finish(): calls `what` with a stream as the caller's whose next work finds the outputs.
  void after_finish(const std::function<void()>& what) { copier_->after_out(what); }

 private:
  struct Range {
    uint64_t begin;
    uint64_t end;
  };
  struct Buffer {
    at::Tensor host;
    at::Tensor device;
    Block block;
    bool comes;
    bool leaves;
    std::vector<size_t> come_with;  // by piece: the number of marks with which it is there; 0: none
    std::vector<Range> left;
  };

  /// The buffer that holds these bytes, and where; null: none does.
  std::pair<Buffer*, Range> find(const std::byte* bytes, uint64_t length);
  void ask(Block block);
  void ask(Buffer& buffer, Range range);
  void ask_for(const Round& round);
  void send(Buffer& buffer, Range range);
  bool have_come(size_t num_marks);

  at::Device device_;
  std::unique_ptr<Copier> copier_;
  uint64_t piece_bytes_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<Mark>> marks_;  // null: reached
  size_t num_reached_ = 0;
  std::unique_ptr<Mark> end_;
};

}  // namespace gear::process_group
