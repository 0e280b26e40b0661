#include "bindings/given_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/errors.h"
#include "bindings/arrays/gpu_arrays.h"

namespace gear::bindings {
namespace {

// `value`: what to call it, if not the number.
float checked_priority(double number, py::handle value = {}) {
  if (!std::isfinite(number) || number < 0 ||
      number > static_cast<double>(std::numeric_limits<float>::max())) {
    const py::object named =
        value ? py::reinterpret_borrow<py::object>(value) : py::object(py::float_(number));
    throw base::InvalidArgument(base::cat("[writer] priority ", py::str(named).cast<std::string>(),
                                          ": a finite number, 0 or more, is allowed"));
  }
  return static_cast<float>(number);
}

float checked_priority(py::handle value) {
  double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    number = std::numeric_limits<double>::quiet_NaN();
  }
  return checked_priority(number, value);
}

std::string keys(const py::kwargs& columns) {
  std::string text;
  for (const auto& [key, value] : columns) {
    text += (text.empty() ? "" : ", ") + py::str(key).cast<std::string>();
  }
  return text.empty() ? "none" : text;
}

}  // namespace

GivenSteps::GivenSteps(std::shared_ptr<const store::Schema> schema) : schema_(std::move(schema)) {
  for (const store::Column& column : schema_->columns()) {
    names_.push_back(
        py::reinterpret_steal<py::object>(PyUnicode_InternFromString(column.name.c_str())));
  }
  inputs_.resize(names_.size());
  rows_.resize(names_.size());
}

bool GivenSteps::is_column(PyObject* name) const {
  return std::ranges::any_of(names_, [name](const py::object& column) {
    return column.ptr() == name || PyUnicode_Compare(column.ptr(), name) == 0;
  });
}

void GivenSteps::drop() {
  for (InputRows& input : inputs_) {
    input.drop();
  }
  priority_input_.drop();
}

void GivenSteps::add_to(GpuArrays& gpu, uint64_t steps) {
  for (size_t c = 0; c < rows_.size(); ++c) {
    if ((on_gpu_ >> c & 1) != 0) {
      gpu.add(rows_[c], steps * (*schema_)[c].step_bytes(), false, &rows_[c]);
    }
  }
}

void GivenSteps::own(uint64_t steps) {
  for (size_t c = 0; c < rows_.size(); ++c) {
    if ((on_gpu_ >> c & 1) == 0 && rows_[c] == inputs_[c].data()) {
      inputs_[c].own(steps * (*schema_)[c].step_bytes());
      rows_[c] = inputs_[c].data();
    }
  }
}

void GivenSteps::set_priorities(std::span<const float> priorities, const bool* looked_at) {
  priorities_.clear();
  for (size_t i = 0; i < priorities.size(); ++i) {
    const double number = static_cast<double>(priorities[i]);
    const bool counts = looked_at == nullptr || looked_at[i];
    priorities_.push_back(counts ? checked_priority(number) : 0.0F);
  }
}

uint64_t GivenSteps::read(const py::kwargs& columns, const Lead& lead,
                          std::initializer_list<PyObject*> others) {
  on_gpu_ = 0;
  priorities_on_gpu_ = nullptr;
  for (size_t c = 0; c < names_.size(); ++c) {
    const py::handle value = PyDict_GetItemWithError(columns.ptr(), names_[c].ptr());
    if (!value) {
      refuse_missing(c, columns);
    }
    inputs_[c].read((*schema_)[c], value, lead);
    rows_[c] = inputs_[c].data();
    on_gpu_ |= uint64_t{inputs_[c].on_gpu()} << c;
  }
  static PyObject* key = PyUnicode_InternFromString("priority");
  const py::handle priority = PyDict_GetItemWithError(columns.ptr(), key);
  size_t known = names_.size() + (priority ? 1 : 0);
  for (PyObject* other : others) {
    known += !is_column(other) && PyDict_GetItemWithError(columns.ptr(), other) != nullptr ? 1 : 0;
  }
  if (known != columns.size()) {
    refuse_unknown(columns, others);
  }
  const bool many = lead.of != Lead::Of::kNothing;
  const uint64_t steps = many ? inputs_[0].steps() : 1;
  for (size_t c = 1; many && c < inputs_.size(); ++c) {
    if (inputs_[c].steps() != steps) {
      throw base::InvalidArgument(base::cat(
          "[writer] column '", (*schema_)[c].name, "' has ", inputs_[c].steps(), " steps, column '",
          (*schema_)[0].name, "' has ", steps, ": give all columns as many"));
    }
  }
  priorities_.clear();
  if (!priority || priority.is_none()) {
    return steps;
  }
  if (many) {
    read_priorities(priority, steps, lead);
  } else {
    priorities_.push_back(checked_priority(priority));
  }
  return steps;
}

void GivenSteps::read_some(const py::dict& columns) {
  std::fill(rows_.begin(), rows_.end(), nullptr);
  for (const auto& [key, value] : columns) {
    const size_t c = schema_->index_of(py::str(key).cast<std::string>());
    inputs_[c].read((*schema_)[c], value, kOneStep);
    rows_[c] = inputs_[c].data();
  }
}

void GivenSteps::read_priorities(py::handle value, uint64_t steps, const Lead& lead) {
  if (lead.gpu != nullptr && GpuArrays::is_on_gpu(value)) {
    priority_input_.read({"priority", {}, base::DType::kF32}, value, lead);
    if (priority_input_.on_gpu()) {
      priorities_on_gpu_ = priority_input_.data();
    } else {
      const auto* fetched = reinterpret_cast<const float*>(priority_input_.data());
      set_priorities({fetched, steps}, lead.looked_at);
    }
    return;
  }
  const auto array = py::array_t<double, py::array::c_style | py::array::forcecast>::ensure(value);
  if (!array ||
      (array.ndim() != 0 && (array.ndim() != 1 || static_cast<uint64_t>(array.size()) != steps))) {
    PyErr_Clear();
    throw base::InvalidArgument(base::cat(
        "[writer] priority of shape ",
        array ? py::str(array.attr("shape")).cast<std::string>() : "?", ": one number, or one ",
        lead.of == Lead::Of::kSteps ? "a step (" : "for each environment (", steps,
        "), is allowed"));
  }
  for (uint64_t i = 0; i < steps; ++i) {
    if (lead.looked_at != nullptr && !lead.looked_at[i]) {
      priorities_.push_back(0.0F);
      continue;
    }
    const double number = array.data()[array.ndim() == 0 ? 0 : i];
    priorities_.push_back(checked_priority(number));
  }
}

void GivenSteps::refuse_missing(size_t c, const py::kwargs& columns) const {
  throw base::InvalidArgument(base::cat("[writer] column '", (*schema_)[c].name,
                                        "' is missing: given ", keys(columns),
                                        "; every column of the schema must be given"));
}

void GivenSteps::refuse_unknown(const py::kwargs& columns,
                                std::initializer_list<PyObject*> others) const {
  for (const auto& [key, value] : columns) {
    const bool other = std::ranges::any_of(
        others, [&](PyObject* name) { return PyUnicode_Compare(name, key.ptr()) == 0; });
    const std::string given = py::str(key).cast<std::string>();
    if (!other && given != "priority") {
      schema_->index_of(given);
    }
  }
  throw base::InvalidArgument("[writer] an argument was removed while it was read");
}

}  // namespace gear::bindings
