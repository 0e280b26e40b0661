#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bindings/input_rows.h"

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

  /// Reads every column, and `priority`, of one step, or (`many`) of as many as there are; returns
  /// how many. Any other keyword than `others` is refused; one of these may be a column as well.
  /// `mask` (null: all): of which rows the priority matters. Throws InvalidArgument.
  uint64_t read(const py::kwargs& columns, bool many, std::initializer_list<PyObject*> others = {},
                std::span<const bool> mask = {});
  /// Reads these columns alone of one step; the rows of others are null.
  void read_some(const py::dict& columns);

  /// One pointer a column.
  std::span<const std::byte* const> rows() const { return rows_; }
  /// One a step, or none for the largest so far.
  std::span<const float> priorities() const { return priorities_; }

 private:
  void drop();
  bool is_column(PyObject* name) const;
  void read_priorities(py::handle value, uint64_t steps, std::span<const bool> mask);
  [[noreturn]] void refuse_missing(size_t column, const py::kwargs& columns) const;
  [[noreturn]] void refuse_unknown(const py::kwargs& columns,
                                   std::initializer_list<PyObject*> others) const;

  std::shared_ptr<const store::Schema> schema_;
  std::vector<py::object> names_;
  std::vector<InputRows> inputs_;
  std::vector<const std::byte*> rows_;
  std::vector<float> priorities_;
};

}  // namespace gear::bindings
