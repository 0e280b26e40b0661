#include "bindings/arrays/input_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/numbers/half.h"
#include "bindings/arrays/dtypes.h"
#include "bindings/arrays/gpu_arrays.h"

namespace gear::bindings {
namespace {

std::string shape_text(const int64_t* dims, size_t count) {
  std::string text = "(";
  for (size_t i = 0; i < count; ++i) {
    text += (i ? ", " : "") + std::to_string(dims[i]);
  }
  return text + ")";
}

std::string expected(const store::Column& column, const Lead& lead) {
  const std::string inner = shape_text(column.shape.data(), column.shape.size());
  if (lead.of == Lead::Of::kNothing) {
    return base::cat(base::kDTypes.name(column.dtype), " of shape ", inner);
  }
  return base::cat(base::kDTypes.name(column.dtype), " of shape (",
                   lead.of == Lead::Of::kSteps ? "steps" : "environments",
                   column.shape.empty() ? "," : ", ", inner.substr(1));
}

[[noreturn]] void refuse(const store::Column& column, const std::string& given, const Lead& lead) {
  throw base::InvalidArgument(base::cat("[writer] column '", column.name, "' takes ",
                                        expected(column, lead), "; given ", given));
}

// Leading steps of a shape that ends in the column's; throws when it does not.
uint64_t count_steps(const store::Column& column, const int64_t* dims, size_t ndim,
                     const Lead& lead, std::string_view dtype) {
  const size_t before = lead.of == Lead::Of::kNothing ? 0 : 1;
  bool fits = ndim == column.shape.size() + before;
  for (size_t i = 0; fits && i < column.shape.size(); ++i) {
    fits = dims[i + before] == column.shape[i];
  }
  if (!fits) {
    refuse(column, base::cat(dtype, " of shape ", shape_text(dims, ndim)), lead);
  }
  const uint64_t rows = before == 0 ? 1 : static_cast<uint64_t>(dims[0]);
  if (lead.of == Lead::Of::kEnvironments && rows != lead.count) {
    throw base::InvalidArgument(base::cat("[writer] '", column.name, "' has ", rows,
                                          " rows: give one for each of the ", lead.count,
                                          " environments"));
  }
  return rows;
}

bool same_dtype(const py::array& array, base::DType dtype) {
  const py::handle descr = py::detail::array_proxy(array.ptr())->descr;
  const py::dtype& wanted = numpy_dtype(dtype);
  if (descr.ptr() == wanted.ptr()) {
    return true;
  }
  if (py::detail::npy_api::get().PyArray_EquivTypes_(descr.ptr(), wanted.ptr())) {
    return true;
  }
  return dtype == base::DType::kBF16 && py::str(descr).cast<std::string>() == "bfloat16";
}

bool is_numpy_scalar(py::handle value) {
  static PyObject* generic =
      py::object(py::module_::import("numpy").attr("generic")).release().ptr();
  return PyObject_IsInstance(value.ptr(), generic) == 1;
}

template <class T>
void put(std::byte* target, T value) {
  std::memcpy(target, &value, sizeof value);
}

template <class T>
bool put_integer(std::byte* target, long long value) {
  if (value < static_cast<long long>(std::numeric_limits<T>::min())) {
    return false;
  }
  if (value >= 0 && static_cast<unsigned long long>(value) >
                        static_cast<unsigned long long>(std::numeric_limits<T>::max())) {
    return false;
  }
  put(target, static_cast<T>(value));
  return true;
}

bool put_integer(base::DType dtype, std::byte* target, long long value) {
  switch (dtype) {
    case base::DType::kU8:
      return put_integer<uint8_t>(target, value);
    case base::DType::kI8:
      return put_integer<int8_t>(target, value);
    case base::DType::kU16:
      return put_integer<uint16_t>(target, value);
    case base::DType::kI16:
      return put_integer<int16_t>(target, value);
    case base::DType::kU32:
      return put_integer<uint32_t>(target, value);
    case base::DType::kI32:
      return put_integer<int32_t>(target, value);
    case base::DType::kU64:
      return put_integer<uint64_t>(target, value);
    case base::DType::kI64:
      return put_integer<int64_t>(target, value);
    default:
      return false;
  }
}

// The least double, without its sign, that rounds to infinity in that type.
double overflows_from(base::DType dtype) {
  switch (dtype) {
    case base::DType::kF16:
      return 0x1.ffep15;
    case base::DType::kBF16:
      return 0x1.feffffp127;  // by way of float32
    case base::DType::kF32:
      return 0x1.ffffffp127;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

bool overflows(base::DType dtype, double value) {
  return std::isfinite(value) && std::abs(value) >= overflows_from(dtype);
}

bool put_float(base::DType dtype, std::byte* target, double value) {
  switch (dtype) {
    case base::DType::kF16: {
      // Rounded by NumPy: once, from the double.
      const py::object half = py::module_::import("numpy").attr("float16")(value);
      const py::array array = py::array::ensure(half);
      std::memcpy(target, array.data(), 2);
      return true;
    }
    case base::DType::kF64:
      put(target, value);
      return true;
    case base::DType::kF32:
      put(target, static_cast<float>(value));
      return true;
    case base::DType::kBF16:
      put(target, base::to_bf16(base::float_bits(static_cast<float>(value))));
      return true;
    default:
      return false;
  }
}

// NumPy's dtype of a tensor of float16, float32 or float64; null for any other.
const py::dtype* numpy_floats(const DLDataType& dtype) {
  if (dtype.code != kDLFloat || dtype.lanes != 1) {
    return nullptr;
  }
  switch (dtype.bits) {
    case 16:
      return &numpy_dtype(base::DType::kF16);
    case 32:
      return &numpy_dtype(base::DType::kF32);
    case 64:
      return &numpy_dtype(base::DType::kF64);
    default:
      return nullptr;
  }
}

bool is_float(base::DType dtype) {
  return dtype == base::DType::kF16 || dtype == base::DType::kBF16 || dtype == base::DType::kF32 ||
         dtype == base::DType::kF64;
}

[[noreturn]] void refuse_infinite(const store::Column& column, double value,
                                  const std::string& where, const Lead& lead) {
  refuse(column,
         base::cat(py::repr(py::float_(value)).cast<std::string>(), where,
                   ", which would become infinite: scale or clip it, or make the column float64"),
         lead);
}

using Doubles = py::array_t<double, py::array::c_style | py::array::forcecast>;

// In the rows that are not looked at.
Doubles with_zeros(const Doubles& doubles, const Lead& lead) {
  const std::vector<py::ssize_t> shape(doubles.shape(), doubles.shape() + doubles.ndim());
  Doubles copy(shape);
  const uint64_t of_row = static_cast<uint64_t>(doubles.size()) / lead.count;
  for (uint64_t row = 0; row < lead.count; ++row) {
    const double* from = doubles.data() + row * of_row;
    double* to = copy.mutable_data() + row * of_row;
    if (lead.looked_at[row]) {
      std::copy_n(from, of_row, to);
    } else {
      std::fill_n(to, of_row, 0.0);
    }
  }
  return copy;
}

// Of values that do not overflow: NumPy warns of nothing.
py::array rounded(const Doubles& doubles, base::DType dtype) {
  if (dtype != base::DType::kBF16) {
    return py::array(doubles.attr("astype")(numpy_dtype(dtype)));
  }
  py::array_t<uint16_t> bits(
      std::vector<py::ssize_t>(doubles.shape(), doubles.shape() + doubles.ndim()));
  std::transform(
      doubles.data(), doubles.data() + doubles.size(), bits.mutable_data(),
      [](double value) { return base::to_bf16(base::float_bits(static_cast<float>(value))); });
  return bits;
}

}  // namespace

void InputRows::read(const store::Column& column, py::handle value, const Lead& lead) {
  on_gpu_ = false;
  if (py::isinstance<py::array>(value)) {
    read_array(column, py::reinterpret_borrow<py::array>(value), lead);
  } else if (is_numpy_scalar(value) && !PyFloat_Check(value.ptr())) {
    read_array(column, py::array::ensure(value), lead);
  } else if (lead.of == Lead::Of::kNothing && column.shape.empty() && read_scalar(column, value)) {
    data_ = scalar_;
    steps_ = 1;
  } else if (py::hasattr(value, "__dlpack__")) {
    read_dlpack(column, value, lead);
  } else {
    refuse(column,
           py::repr(py::type::of(value)).cast<std::string>() +
               ": give a NumPy array, a tensor or a scalar",
           lead);
  }
}

bool InputRows::read_scalar(const store::Column& column, py::handle value) {
  if (PyBool_Check(value.ptr())) {
    if (column.dtype != base::DType::kBool) {
      return false;
    }
    put(scalar_, value.ptr() == Py_True);
    return true;
  }
  if (PyFloat_Check(value.ptr())) {
    const double number = PyFloat_AS_DOUBLE(value.ptr());
    if (overflows(column.dtype, number)) {
      refuse_infinite(column, number, "", kOneStep);
    }
    return put_float(column.dtype, scalar_, number);
  }
  if (!PyLong_Check(value.ptr())) {
    return false;
  }
  int overflow = 0;
  const long long integer = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow > 0 && column.dtype == base::DType::kU64) {
    const unsigned long long large = PyLong_AsUnsignedLongLong(value.ptr());
    if (PyErr_Occurred() == nullptr) {
      put(scalar_, static_cast<uint64_t>(large));
      return true;
    }
    PyErr_Clear();
  }
  if (overflow == 0 && put_integer(column.dtype, scalar_, integer)) {
    return true;
  }
  const double number = PyLong_AsDouble(value.ptr());
  PyErr_Clear();  // beyond float64: refused below
  if (overflow == 0 && !overflows(column.dtype, number) &&
      put_float(column.dtype, scalar_, number)) {
    return true;
  }
  refuse(column,
         base::cat("the integer ", py::str(value).cast<std::string>(), ", which does not fit"),
         kOneStep);
}

void InputRows::read_floats(const store::Column& column, const py::array& array, const Lead& lead) {
  const std::vector<int64_t> dims(array.shape(), array.shape() + array.ndim());
  const uint64_t steps = count_steps(column, dims.data(), dims.size(), lead,
                                     py::str(array.dtype()).cast<std::string>());
  Doubles doubles(array);
  if (lead.looked_at != nullptr) {
    doubles = with_zeros(doubles, lead);
  }
  const auto* values = doubles.data();
  for (py::ssize_t i = 0; i < doubles.size(); ++i) {
    if (overflows(column.dtype, values[i])) {
      const uint64_t of_step = static_cast<uint64_t>(doubles.size()) / steps;
      const std::string row = base::cat(" in row ", static_cast<uint64_t>(i) / of_step);
      refuse_infinite(column, values[i], lead.of == Lead::Of::kNothing ? "" : row, lead);
    }
  }
  read_array(column, rounded(doubles, column.dtype), lead);
}

void InputRows::read_array(const store::Column& column, const py::array& array, const Lead& lead) {
  if (!same_dtype(array, column.dtype)) {
    if (is_float(column.dtype) && array.dtype().kind() == 'f' && array.itemsize() <= 8) {
      read_floats(column, array, lead);
      return;
    }
    refuse(column,
           base::cat("dtype ", py::str(array.dtype()).cast<std::string>(),
                     ": convert with .astype('", base::kDTypes.name(column.dtype), "')"),
           lead);
  }
  std::array<int64_t, 64> dims;
  const auto ndim = static_cast<size_t>(array.ndim());
  for (size_t i = 0; i < ndim; ++i) {
    dims[i] = array.shape(static_cast<py::ssize_t>(i));
  }
  steps_ = count_steps(column, dims.data(), ndim, lead, base::kDTypes.name(column.dtype));
  py::array contiguous = array;
  if (!(array.flags() & py::array::c_style)) {
    contiguous = py::reinterpret_steal<py::array>(
        py::detail::npy_api::get().PyArray_NewCopy_(array.ptr(), 0 /* C order */));
    if (!contiguous) {
      throw py::error_already_set();
    }
  }
  data_ = static_cast<const std::byte*>(contiguous.data());
  keep_ = std::move(contiguous);
}

void InputRows::read_dlpack(const store::Column& column, py::handle value, const Lead& lead) {
  const py::object device = value.attr("__dlpack_device__")();
  const int type = device[py::int_(0)].cast<int>();
  const bool on_gpu = type == kDLCUDA && lead.gpu != nullptr;
  if (type != kDLCPU && type != kDLCUDAHost && !on_gpu) {
    refuse(column, base::cat("a tensor on device type ", type, ": move it to the CPU first"), lead);
  }
  py::object source = py::reinterpret_borrow<py::object>(value);
  if (py::hasattr(source, "detach")) {
    source = source.attr("detach")();
  }
  if (py::hasattr(source, "contiguous")) {
    source = source.attr("contiguous")();
  }
  const py::capsule capsule =
      on_gpu ? lead.gpu->capsule_of(source) : py::capsule(source.attr("__dlpack__")());
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (managed == nullptr) {
    throw py::error_already_set();
  }
  const DLTensor& tensor = managed->dl_tensor;
  const DLDataType wanted = dlpack_dtype(column.dtype);
  const auto ndim = static_cast<size_t>(tensor.ndim);
  const bool same = tensor.dtype.code == wanted.code && tensor.dtype.bits == wanted.bits &&
                    tensor.dtype.lanes == 1;
  const py::dtype* floats = same ? nullptr : numpy_floats(tensor.dtype);
  if (!same && (on_gpu || floats == nullptr || !is_float(column.dtype))) {
    refuse(column,
           base::cat("a tensor of another dtype (",
                     py::str(source.attr("dtype")).cast<std::string>(), "): convert it first"),
           lead);
  }
  steps_ = count_steps(column, tensor.shape, ndim, lead, base::kDTypes.name(column.dtype));
  int64_t stride = 1;
  for (size_t i = ndim; tensor.strides != nullptr && i-- > 0; stride *= tensor.shape[i]) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) {
      refuse(column, "a strided tensor: make it contiguous first", lead);
    }
  }
  const auto* data = static_cast<const std::byte*>(tensor.data) + tensor.byte_offset;
  if (floats != nullptr) {
    const std::vector<py::ssize_t> shape(tensor.shape, tensor.shape + ndim);
    read_floats(column, py::array(*floats, shape, data, capsule), lead);
    return;
  }
  data_ = data;
  keep_ = capsule;  // not renamed to "used_dltensor": the capsule itself frees the tensor
  if (!on_gpu) {
    return;
  }
  own_ = lead.gpu->fetched(data, steps_ * column.step_bytes());
  on_gpu_ = own_ == nullptr;
  data_ = on_gpu_ ? data : own_.get();
}

void InputRows::own(uint64_t bytes) {
  GEAR_CHECK(!on_gpu_);
  if (data_ == own_.get()) {
    return;  // fetched
  }
  own_ = std::make_shared<std::byte[]>(bytes);
  std::memcpy(own_.get(), data_, bytes);
  data_ = own_.get();
}

}  // namespace gear::bindings
