#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bindings/arrays/input_rows.h"

namespace gear::bindings {

/// The columns and priorities that a caller gives for steps, by keyword.
class GivenSteps {
 public:
  explicit GivenSteps(std::shared_ptr<const store::Schema> schema);

  /// Keeps what a call was given alive for as long as the call.
  class Kept {
   public:
    explicit Kept(GivenSteps& given) : given_(given) {}
    ~Kept() { given_.drop(); }
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;

   private:
    GivenSteps& given_;
  };

  /// Reads every column, and `priority`, of one step, of as many as there are, or of one of each
  /// environment; returns how many. Any other keyword than `others` is refused; one of these may be
  /// a column as well. Throws InvalidArgument.
  uint64_t read(const py::kwargs& columns, const Lead& lead,
                std::initializer_list<PyObject*> others = {});
  /// Reads these columns alone of one step; the rows of others are null.
  void read_some(const py::dict& columns);

  /// The rows of a column are these, which the caller keeps.
  void replace(size_t column, const std::byte* rows) { rows_[column] = rows; }
  /// The columns whose rows lie on a GPU are added to it, and will be where it copies them to.
  void add_to(GpuArrays& gpu, uint64_t steps);
  /// The host's rows last until the next read(), whatever the caller does to its arrays.
  void own(uint64_t steps);
  /// The bits of the columns whose rows lie on a GPU.
  uint64_t on_gpu() const { return on_gpu_; }
  /// Of priorities on a GPU, that many, in place of priorities(); else null.
  const std::byte* priorities_on_gpu() const { return priorities_on_gpu_; }
  /// Which were these. Throws InvalidArgument as read().
  void set_priorities(std::span<const float> priorities, const bool* looked_at);

  /// One pointer a column.
  std::span<const std::byte* const> rows() const { return rows_; }
  /// One a step, or none for the largest so far; 0 where a row is not looked at.
  std::span<const float> priorities() const { return priorities_; }

 private:
  void drop();
  bool is_column(PyObject* name) const;
  void read_priorities(py::handle value, uint64_t steps, const Lead& lead);
  [[noreturn]] void refuse_missing(size_t column, const py::kwargs& columns) const;
  [[noreturn]] void refuse_unknown(const py::kwargs& columns,
                                   std::initializer_list<PyObject*> others) const;

  std::shared_ptr<const store::Schema> schema_;
  std::vector<py::object> names_;
  std::vector<InputRows> inputs_;
  std::vector<const std::byte*> rows_;
  uint64_t on_gpu_ = 0;
  std::vector<float> priorities_;
  InputRows priority_input_;
  const std::byte* priorities_on_gpu_ = nullptr;
};

}  // namespace gear::bindings
