#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/errors.h"
#include "base/log.h"
#include "base/threads/thread_pool.h"
#include "bindings/batch.h"
#include "bindings/ranks/buffer_peers.h"
#include "deliver/make_source.h"
#include "group/group_source.h"
#include "group/pull/pull_source.h"

namespace gear::bindings {
namespace {
using deliver::Pipeline;
using plan::Batch;

// (name, column, start, stop, pad, time_axis, dtype, scale, derived)
using OutputTuple = std::tuple<std::string, std::string, int64_t, int64_t, std::string, bool,
                               std::optional<std::string>, float, std::string>;

std::vector<plan::Output> make_outputs(const store::Schema& schema,
                                       const std::vector<OutputTuple>& tuples) {
  std::vector<plan::Output> outputs;
  for (const auto& [name, column, start, stop, pad, time_axis, dtype, scale, what] : tuples) {
    if (!what.empty()) {
      outputs.emplace_back(
          name, plan::Standing{
                    plan::kDerived.parse(what), {start, stop, plan::kPads.parse(pad)}, time_axis});
      continue;
    }
    plan::StepColumn of{schema.index_of(column), {start, stop, plan::kPads.parse(pad)}, time_axis};
    of.scale = scale;
    if (dtype) {
      of.dtype = base::kDTypes.parse(*dtype);
    }
    outputs.emplace_back(name, of);
  }
  return outputs;
}

// GPU number, or -1 for the CPU.
int parse_device(const std::string& device) {
  if (device == "cpu") {
    return -1;
  }
  if (device == "cuda") {
    return deliver::choose_gpu(-1);
  }
  constexpr std::string_view kPrefix = "cuda:";
  const std::string_view number =
      std::string_view(device).substr(std::min(device.size(), kPrefix.size()));
  int index = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  if (!device.starts_with(kPrefix) || error != std::errc() ||
      end != number.data() + number.size() || index < 0) {
    throw base::InvalidArgument(
        base::cat("[loader] device '", device, "': 'cpu', 'cuda' and 'cuda:<index>' are allowed"));
  }
  return deliver::choose_gpu(index);
}

// What a loader was asked for, checked against its buffer.
struct LoaderOptions {
  deliver::Request request;
  group::GroupOptions group;
  bool pull;
};

LoaderOptions make_options(const store::Shard& shard, const std::vector<OutputTuple>& outputs,
                           uint64_t batch_size, bool packed, uint64_t prefetch,
                           const std::string& policy, const std::string& unit, uint64_t seed,
                           double alpha, double beta, bool shuffle, bool drop_last, int device,
                           const std::string& path, const std::string& locality, bool nccl,
                           std::optional<double> timeout_s, bool pull,
                           const std::string& normalize) {
  shard.check_draws("loader");
  return {{shard,
           {make_outputs(shard.schema(), outputs),
            batch_size,
            packed,
            prefetch,
            {select::kPolicies.parse(policy), store::kUnits.parse(unit), seed, alpha, beta,
             select::kNormalizations.parse(normalize), shuffle, drop_last},
            device,
            plan::kPaths.parse(path)}},
          {group::kLocalities.parse(locality), nccl, timeout_s},
          pull};
}

// The state has the numbers of a position by the names that an epoch's have; 0 where a law has
// fewer.
uint64_t number(const select::SamplerPosition& position, size_t i) {
  return i < position.numbers.size() ? position.numbers[i] : 0;
}

// Of a dict that state() made, checked in gear/loader_state.py.
Pipeline::State state_of(const py::dict& saved) {
  Pipeline::State state;
  state.position = {{saved["draws"].cast<uint64_t>(), saved["epoch"].cast<uint64_t>(),
                     saved["size"].cast<uint64_t>()},
                    saved["beta"].cast<double>()};
  for (const py::handle entry : saved["pending"]) {
    const auto [draws, epoch, size] =
        entry["before"].cast<std::tuple<uint64_t, uint64_t, uint64_t>>();
    const auto data = entry["data"].cast<py::array_t<uint8_t, py::array::c_style>>();
    const auto* const bytes = reinterpret_cast<const std::byte*>(data.data());
    state.pending.push_back({{{draws, epoch, size}, state.position.beta},
                             entry["epoch_end"].cast<bool>(),
                             entry["items"].cast<uint64_t>(),
                             entry["rows"].cast<std::vector<uint64_t>>(),
                             {bytes, bytes + data.size()},
                             entry["uses"].cast<std::vector<uint64_t>>(),
                             entry["draws"].cast<uint64_t>()});
  }
  return state;
}

class PyCollector {
  // Without the GIL, and as the only call of this loader.
  template <class Call>
  auto alone(Call call) {
    const py::gil_scoped_release release;
    const OneThread::Turn turn(calls_);
    return call();
  }

 public:
  PyCollector(std::shared_ptr<store::Shard> shard, const LoaderOptions& options,
              std::optional<std::shared_ptr<BufferPeers>> peers)
      : schema_(shard->shared_schema()),
        shard_(shard),
        batch_size_(options.request.options.batch_size),
        peers_(std::move(peers).value_or(nullptr)) {
    const py::gil_scoped_release release;
    static_cast<void>(base::ThreadPool::shared());  // may log, which nobody may under a lock
    if (options.pull) {
      GEAR_CHECK(peers_ && peers_->published);
      pulls_ = true;
      pipeline_ = group::make_pull_pipeline(peers_, peers_->published, options.request);
    } else if (peers_) {
      pipeline_ = group::make_pipeline(peers_, options.request, options.group);
    } else {
      pipeline_ = deliver::make_pipeline(std::move(shard), options.request);
    }
  }

  // Ends threads that may want the GIL for a last message.
  ~PyCollector() {
    const py::gil_scoped_release release;
    pipeline_.reset();
    shard_.reset();
  }
  PyCollector(const PyCollector&) = delete;
  PyCollector& operator=(const PyCollector&) = delete;

  // A batch, None at the end of an epoch, or TimeoutError.
  py::object next(std::optional<double> timeout_s) {
    Batch batch;
    Pipeline::Next result = Pipeline::Next::kTimedOut;
    const bool in_time = wait_interruptibly(
        timeout_s,
        [&](double slice) {
          const OneThread::Turn turn(calls_);
          std::optional<OneThread::Turn> draw;
          if (peers_ && !pulls_) {
            draw.emplace(peers_->draws);
          }
          result = pipeline_->next(slice, batch);
          return result != Pipeline::Next::kTimedOut;
        },
        [&] {
          base::log(base::Level::kWarning, base::cat("[loader] next() has waited ", kLongWaitS,
                                                     " s for the rate limit: ", waits_for()));
        });
    if (!in_time) {
      PyErr_SetString(PyExc_TimeoutError,
                      base::cat("[loader] the rate limit allowed no batch within ", *timeout_s,
                                " s: ", waits_for())
                          .c_str());
      throw py::error_already_set();
    }
    if (result == Pipeline::Next::kEpochEnd) {
      return py::none();
    }
    return py::cast(new PyBatch(std::move(batch), schema_),
                    py::return_value_policy::take_ownership);
  }

  void end() {
    alone([&] { pipeline_->end(); });
  }

  bool out_of_step() const { return pipeline_->out_of_step(); }

  py::dict state() {
    const Pipeline::State state = alone([&] { return pipeline_->state(); });
    py::list pending;
    for (const Pipeline::PendingBatch& batch : state.pending) {
      const py::array_t<uint8_t> data(static_cast<py::ssize_t>(batch.data.size()),
                                      reinterpret_cast<const uint8_t*>(batch.data.data()));
      py::dict entry;
      entry["before"] =
          py::make_tuple(number(batch.before, 0), number(batch.before, 1), number(batch.before, 2));
      entry["epoch_end"] = batch.epoch_end;
      entry["items"] = batch.items;
      entry["rows"] = batch.rows;
      entry["data"] = data;
      entry["draws"] = batch.draws;
      entry["uses"] = batch.uses;
      pending.append(entry);
    }
    py::dict out;
    out["draws"] = number(state.position, 0);
    out["epoch"] = number(state.position, 1);
    out["size"] = number(state.position, 2);
    out["beta"] = state.position.beta;
    out["pending"] = pending;
    return out;
  }

  // Throws for a state that restore() would refuse for its batches.
  void check(const py::dict& saved) {
    const Pipeline::State state = state_of(saved);
    alone([&] { pipeline_->check(state); });
  }

  void restore(const py::dict& saved) {
    const Pipeline::State state = state_of(saved);
    alone([&] { pipeline_->restore(state); });
  }

  py::dict stats() {
    const deliver::Stats stats = pipeline_->stats();
    py::dict bytes_by_path;
    for (const plan::Path path :
         {plan::Path::kDevice, plan::Path::kZeroCopy, plan::Path::kStaged, plan::Path::kHost}) {
      bytes_by_path[plan::kPaths.name(path).data()] = path == stats.path ? stats.bytes : 0;
    }
    py::dict hits;
    for (const memory::Tier tier : {memory::Tier::kHost, memory::Tier::kShared,
                                    memory::Tier::kPinned, memory::Tier::kDevice}) {
      hits[memory::kTiers.name(tier).data()] = tier == stats.tier ? stats.items : 0;
    }
    py::dict out;
    out["batches"] = stats.batches;
    out["items"] = stats.items;
    out["bytes"] = stats.bytes;
    out["wait_s"] = stats.wait_s;
    out["gather_s"] = stats.gather_s;
    out["gb_per_s"] = stats.gb_per_s;
    out["path"] = plan::kPaths.name(stats.path);
    out["selection"] = stats.selects_on_device ? "device" : "host";
    out["bytes_by_path"] = bytes_by_path;
    out["hits"] = hits;
    out["local_bytes"] = peers_ ? stats.local_bytes : stats.bytes;
    out["same_node_bytes"] = stats.same_node_bytes;
    out["remote_bytes"] = stats.remote_bytes;
    out["message_bytes"] = stats.message_bytes;
    out["one_sided_bytes"] = stats.one_sided_bytes;
    out["packed_bytes"] = stats.packed_bytes;
    out["pack_below"] = stats.pack_below;
    out["repeated"] = stats.repeated;
    out["stale"] = stats.stale;
    return out;
  }

  void set_beta(double beta) {
    alone([&] { pipeline_->set_beta(beta); });
  }
  uint64_t batches_per_epoch() {
    return alone([&] { return pipeline_->batches_per_epoch(); });
  }

 private:
  // What a next() that waits waits for, and who can end it.
  std::string waits_for() const {
    std::string counts;
    bool allowed = false;
    {
      const auto lock = shard_->lock();
      counts = shard_->rate_limiter().sampling_waits_for(batch_size_);
      allowed = shard_->rate_limiter().may_sample(batch_size_);
    }
    if (!allowed) {
      return base::cat(counts,
                       "; append them, in another thread if this one only draws, or give the "
                       "buffer another rate_limit");
    }
    return base::cat(counts,
                     peers_ ? " on this rank, and another rank's steps do not suffice yet: append "
                              "there"
                            : ", but no stored step may be drawn: a step of an open episode is "
                              "offered once its windows are complete, an episode once it has "
                              "ended");
  }

  std::shared_ptr<const store::Schema> schema_;
  std::shared_ptr<store::Shard> shard_;
  uint64_t batch_size_;
  std::shared_ptr<BufferPeers> peers_;  // null: no group
  bool pulls_ = false;                  // alone: other loaders of the buffer do not mind
  std::unique_ptr<Pipeline> pipeline_;
  OneThread calls_{
      "[loader] another thread's call of this loader has not returned: one thread at a time may "
      "use a loader; make one a thread, or put a lock around it"};
};

PyBatch collect_ids(const std::shared_ptr<store::Shard>& shard,
                    const py::array_t<int64_t, py::array::c_style>& ids,
                    const std::vector<OutputTuple>& outputs, bool packed, int device) {
  if (ids.ndim() != 1) {
    throw base::InvalidArgument(
        base::cat("[loader] ids of ", ids.ndim(), " dimensions: one is allowed"));
  }
  const std::vector<int64_t> wanted(ids.data(), ids.data() + ids.size());
  shard->check_rows("collect");
  const std::vector<plan::Output> specs = make_outputs(shard->schema(), outputs);
  Batch batch;
  {
    const py::gil_scoped_release release;
    batch = deliver::collect_ids(*shard, wanted, specs, packed, device);
  }
  return {std::move(batch), shard->shared_schema()};
}

}  // namespace

void register_collect(py::module_& module) {
  module.def("parse_device", &parse_device, py::arg("device"),
             "The GPU that 'cuda' or 'cuda:<index>' names; -1 for 'cpu'.");

  py::class_<LoaderOptions>(module, "LoaderOptions")
      .def(py::init(&make_options), py::arg("shard"), py::kw_only(), py::arg("outputs"),
           py::arg("batch_size"), py::arg("packed"), py::arg("prefetch"), py::arg("policy"),
           py::arg("unit"), py::arg("seed"), py::arg("alpha"), py::arg("beta"), py::arg("shuffle"),
           py::arg("drop_last"), py::arg("device"), py::arg("path"), py::arg("locality"),
           py::arg("nccl"), py::arg("timeout_s"), py::arg("pull"), py::arg("normalize") = "batch");
  py::class_<PyCollector>(module, "Collector")
      .def(py::init<std::shared_ptr<store::Shard>, const LoaderOptions&,
                    std::optional<std::shared_ptr<BufferPeers>>>(),
           py::arg("shard"), py::arg("options"), py::arg("peers"))
      .def("next", &PyCollector::next, py::arg("timeout_s") = py::none())
      .def("end", &PyCollector::end)
      .def("out_of_step", &PyCollector::out_of_step)
      .def("state", &PyCollector::state)
      .def("check", &PyCollector::check, py::arg("state"))
      .def("restore", &PyCollector::restore, py::arg("state"))
      .def("stats", &PyCollector::stats)
      .def("set_beta", &PyCollector::set_beta, py::arg("beta"))
      .def("batches_per_epoch", &PyCollector::batches_per_epoch);
  module.def("collect_ids", &collect_ids, py::arg("shard"), py::arg("ids"), py::arg("outputs"),
             py::arg("packed"), py::arg("device"));
}

}  // namespace gear::bindings
