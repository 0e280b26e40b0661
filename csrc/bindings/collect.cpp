#include "collect/collector.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstring>

#include "base/errors.h"
#include "bindings/arrays.h"

namespace gear::bindings {
namespace {

using base::cat;
using base::InvalidArgument;
using collect::Batch;
using collect::BatchLayout;
using collect::Collector;

// (name, column, start, stop, pad, time_axis)
using OutputTuple = std::tuple<std::string, std::string, int64_t, int64_t, std::string, bool>;

collect::Pad parse_pad(const std::string& pad) {
  if (pad == "both") return collect::Pad::kBoth;
  if (pad == "head") return collect::Pad::kHead;
  if (pad == "tail") return collect::Pad::kTail;
  throw InvalidArgument(cat("[collect] pad '", pad, "': 'both', 'head' and 'tail' are allowed"));
}

std::vector<collect::Output> make_outputs(const store::Schema& schema,
                                          const std::vector<OutputTuple>& tuples) {
  std::vector<collect::Output> outputs;
  for (const auto& [name, column, start, stop, pad, time_axis] : tuples) {
    outputs.push_back({name, schema.index_of(column), start, stop, parse_pad(pad), time_axis});
  }
  return outputs;
}

store::Unit parse_unit(const std::string& unit) {
  if (unit == "step") return store::Unit::kStep;
  if (unit == "episode") return store::Unit::kEpisode;
  throw InvalidArgument(cat("[select] unit '", unit, "': 'step' and 'episode' are allowed"));
}

select::Policy parse_policy(const std::string& policy) {
  using select::Policy;
  if (policy == "uniform") return Policy::kUniform;
  if (policy == "weighted") return Policy::kWeighted;
  if (policy == "sequential") return Policy::kSequential;
  if (policy == "fifo") return Policy::kFifo;
  if (policy == "lifo") return Policy::kLifo;
  if (policy == "topk") return Policy::kTopK;
  throw InvalidArgument(cat("[select] no sampler '", policy, "'"));
}

// A batch as Python sees it: tensors by kind and output number. The schema gives shapes.
class PyBatch {
 public:
  enum Kind { kData, kMask, kLengths, kCuSeqlens, kIds, kProbabilities, kWeights };

  PyBatch(Batch batch, std::shared_ptr<const store::Schema> schema)
      : batch_(std::move(batch)), schema_(std::move(schema)) {}

  uint64_t items() const { return batch_.items; }
  uint64_t bytes() const { return batch_.bytes; }

  TensorView view(int kind, size_t output) const {
    const BatchLayout& layout = *batch_.layout;
    const auto items = static_cast<int64_t>(batch_.items);
    const bool per_output = kind <= kCuSeqlens;
    if (per_output && output >= layout.outputs.size()) throw py::index_error("no such output");
    switch (kind) {
      case kIds:
        return make(layout.ids, base::DType::kI64, {items});
      case kProbabilities:
        return make(layout.probabilities, base::DType::kF32, {items});
      case kWeights:
        return make(layout.weights, base::DType::kF32, {items});
      default:
        break;
    }
    const size_t window = layout.window_of[output];
    const BatchLayout::SharedWindow& shared = layout.windows[window];
    const collect::Output& spec = layout.outputs[output];
    const auto length = static_cast<int64_t>(spec.length());
    std::vector<int64_t> shape;
    switch (kind) {
      case kLengths:
        return make(shared.lengths, base::DType::kI32, {items});
      case kCuSeqlens:
        if (!layout.packed) throw InvalidArgument("[collect] cu_seqlens belong to packed batches");
        return make(shared.cu_seqlens, base::DType::kI32, {items + 1});
      case kMask:
        if (layout.packed)
          throw InvalidArgument(
              "[collect] a packed batch has no masks: nothing "
              "is padded; see lengths and cu_seqlens");
        shape = {items};
        if (spec.time_axis) shape.push_back(length);
        return make(shared.mask, base::DType::kBool, std::move(shape));
      case kData: {
        const store::Column& column = (*schema_)[spec.column];
        if (layout.packed) {
          shape = {static_cast<int64_t>(batch_.rows[window])};
        } else {
          shape = {items};
          if (spec.time_axis) shape.push_back(length);
        }
        shape.insert(shape.end(), column.shape.begin(), column.shape.end());
        return make(layout.data[output], column.dtype, std::move(shape));
      }
      default:
        throw py::index_error("no such kind of tensor");
    }
  }

 private:
  TensorView make(uint64_t offset, base::DType dtype, std::vector<int64_t> shape) const {
    return {batch_.block, batch_.block.get() + offset, dtype, std::move(shape)};
  }

  Batch batch_;
  std::shared_ptr<const store::Schema> schema_;
};

class PyCollector {
 public:
  PyCollector(std::shared_ptr<store::Shard> shard, const std::vector<OutputTuple>& outputs,
              uint64_t batch_size, bool packed, uint64_t prefetch, const std::string& policy,
              const std::string& unit, uint64_t seed, double alpha, double beta, bool shuffle,
              bool drop_last)
      : schema_(shard->shared_schema()),
        collector_(std::move(shard), {make_outputs(*schema_, outputs),
                                      batch_size,
                                      packed,
                                      prefetch,
                                      {parse_policy(policy), parse_unit(unit), seed, alpha, beta,
                                       shuffle, drop_last}}) {}

  // A batch, None at the end of an epoch, or TimeoutError.
  py::object next(std::optional<double> timeout_s) {
    Batch batch;
    Collector::Next result = Collector::Next::kTimedOut;
    const bool in_time = wait_interruptibly(timeout_s, [&](double slice) {
      result = collector_.next(slice, batch);
      return result != Collector::Next::kTimedOut;
    });
    if (!in_time) {
      PyErr_SetString(PyExc_TimeoutError,
                      cat("[collect] the rate limit allowed no batch within ", *timeout_s,
                          " s: writers append too slowly, or min_steps is not reached")
                          .c_str());
      throw py::error_already_set();
    }
    if (result == Collector::Next::kEpochEnd) return py::none();
    return py::cast(new PyBatch(std::move(batch), schema_),
                    py::return_value_policy::take_ownership);
  }

  py::dict state() {
    Collector::State state;
    {
      const py::gil_scoped_release release;
      state = collector_.state();
    }
    py::list pending;
    for (const Collector::PendingBatch& batch : state.pending) {
      const py::array_t<uint8_t> data(static_cast<py::ssize_t>(batch.data.size()),
                                      reinterpret_cast<const uint8_t*>(batch.data.data()));
      py::dict entry;
      entry["epoch_end"] = batch.epoch_end;
      entry["items"] = batch.items;
      entry["rows"] = batch.rows;
      entry["data"] = data;
      pending.append(entry);
    }
    py::dict out;
    out["draws"] = state.position.draws;
    out["epoch"] = state.position.epoch;
    out["size"] = state.position.size;
    out["beta"] = state.position.beta;
    out["pending"] = pending;
    return out;
  }

  void restore(const py::dict& saved) {
    Collector::State state;
    for (const char* key : {"draws", "epoch", "size", "beta", "pending"}) {
      if (!saved.contains(key)) {
        throw InvalidArgument(
            cat("[collect] the loader's state lacks '", key, "': give what state_dict() returned"));
      }
    }
    state.position = {saved["draws"].cast<uint64_t>(), saved["epoch"].cast<uint64_t>(),
                      saved["size"].cast<uint64_t>(), saved["beta"].cast<double>()};
    for (const py::handle entry : saved["pending"]) {
      Collector::PendingBatch pending;
      pending.epoch_end = entry["epoch_end"].cast<bool>();
      pending.items = entry["items"].cast<uint64_t>();
      pending.rows = entry["rows"].cast<std::vector<uint64_t>>();
      const auto data = entry["data"].cast<py::array_t<uint8_t, py::array::c_style>>();
      pending.data.resize(static_cast<size_t>(data.size()));
      if (data.size() > 0) std::memcpy(pending.data.data(), data.data(), pending.data.size());
      state.pending.push_back(std::move(pending));
    }
    const py::gil_scoped_release release;
    collector_.restore(state);
  }

  py::dict stats() {
    const Collector::Stats stats = collector_.stats();
    py::dict out;
    out["batches"] = stats.batches;
    out["items"] = stats.items;
    out["bytes"] = stats.bytes;
    out["wait_s"] = stats.wait_s;
    out["gather_s"] = stats.gather_s;
    return out;
  }

  Collector& collector() { return collector_; }

 private:
  std::shared_ptr<const store::Schema> schema_;
  Collector collector_;
};

PyBatch collect_ids(const std::shared_ptr<store::Shard>& shard,
                    const py::array_t<int64_t, py::array::c_style>& ids,
                    const std::vector<OutputTuple>& outputs, bool packed) {
  if (ids.ndim() != 1) {
    throw InvalidArgument(cat("[collect] ids of ", ids.ndim(), " dimensions: one is allowed"));
  }
  const std::vector<int64_t> wanted(ids.data(), ids.data() + ids.size());
  const std::vector<collect::Output> specs = make_outputs(shard->schema(), outputs);
  Batch batch;
  {
    const py::gil_scoped_release release;
    batch = collect::collect_ids(*shard, wanted, specs, packed);
  }
  return {std::move(batch), shard->shared_schema()};
}

}  // namespace

void register_collect(py::module_& module) {
  py::class_<PyBatch> batch(module, "Batch");
  batch.def_property_readonly("items", &PyBatch::items)
      .def_property_readonly("bytes", &PyBatch::bytes)
      .def(
          "numpy",
          [](const PyBatch& self, int kind, size_t output) {
            return to_numpy(self.view(kind, output));
          },
          py::arg("kind"), py::arg("output") = 0)
      .def(
          "dlpack",
          [](const PyBatch& self, int kind, size_t output) {
            return to_dlpack(self.view(kind, output));
          },
          py::arg("kind"), py::arg("output") = 0);
  batch.attr("DATA") = static_cast<int>(PyBatch::kData);
  batch.attr("MASK") = static_cast<int>(PyBatch::kMask);
  batch.attr("LENGTHS") = static_cast<int>(PyBatch::kLengths);
  batch.attr("CU_SEQLENS") = static_cast<int>(PyBatch::kCuSeqlens);
  batch.attr("IDS") = static_cast<int>(PyBatch::kIds);
  batch.attr("PROBABILITIES") = static_cast<int>(PyBatch::kProbabilities);
  batch.attr("WEIGHTS") = static_cast<int>(PyBatch::kWeights);

  py::class_<PyCollector>(module, "Collector")
      .def(py::init<std::shared_ptr<store::Shard>, const std::vector<OutputTuple>&, uint64_t, bool,
                    uint64_t, const std::string&, const std::string&, uint64_t, double, double,
                    bool, bool>(),
           py::arg("shard"), py::kw_only(), py::arg("outputs"), py::arg("batch_size"),
           py::arg("packed"), py::arg("prefetch"), py::arg("policy"), py::arg("unit"),
           py::arg("seed"), py::arg("alpha"), py::arg("beta"), py::arg("shuffle"),
           py::arg("drop_last"))
      .def("next", &PyCollector::next, py::arg("timeout_s") = py::none())
      .def("state", &PyCollector::state)
      .def("restore", &PyCollector::restore, py::arg("state"))
      .def("stats", &PyCollector::stats)
      .def(
          "set_beta", [](PyCollector& self, double beta) { self.collector().set_beta(beta); },
          py::arg("beta"))
      .def("batches_per_epoch",
           [](PyCollector& self) { return self.collector().batches_per_epoch(); });
  module.def("collect_ids", &collect_ids, py::arg("shard"), py::arg("ids"), py::arg("outputs"),
             py::arg("packed"));
}

}  // namespace gear::bindings
