#include <pybind11/stl.h>

#include <cmath>

#include "base/errors.h"
#include "base/log.h"
#include "bindings/input_rows.h"
#include "bindings/one_thread.h"
#include "store/writer.h"

namespace gear::bindings {
namespace {

// store::Writer for Python callers: reads the columns of a call, keeps the memory for that.
class PyWriter {
 public:
  PyWriter(std::shared_ptr<store::Shard> shard, std::optional<uint64_t> episode)
      : shard_(std::move(shard)), writer_(std::make_unique<store::Writer>(shard_, episode)) {
    for (const store::Column& column : shard_->schema().columns()) {
      names_.push_back(
          py::reinterpret_steal<py::object>(PyUnicode_InternFromString(column.name.c_str())));
    }
    inputs_.resize(names_.size());
    rows_.resize(names_.size());
  }

  void append(const py::kwargs& columns) {
    const OneThread::Turn turn(calls_);
    const Given given(inputs_);
    require_open("append");
    write(read(columns, false));
  }

  void extend(const py::kwargs& columns) {
    const OneThread::Turn turn(calls_);
    const Given given(inputs_);
    require_open("extend");
    write(read(columns, true));
  }

  void end_episode(bool terminated, std::optional<double> weight,
                   const std::optional<py::dict>& last) {
    const OneThread::Turn turn(calls_);
    const Given given(inputs_);
    require_open("end_episode");
    if (weight && (!std::isfinite(*weight) || *weight < 0)) {
      throw base::InvalidArgument(
          base::cat("[ingest] weight ", *weight, ": a finite number, 0 or more, is allowed"));
    }
    std::fill(rows_.begin(), rows_.end(), nullptr);
    const bool closes = last && !last->empty();
    if (closes) {
      for (const auto& [key, value] : *last) {
        const size_t c = shard_->schema().index_of(py::str(key).cast<std::string>());
        inputs_[c].read(shard_->schema()[c], value, false);
        rows_[c] = inputs_[c].data();
      }
      if (!writer_->episode_uid()) {
        throw base::InvalidArgument(
            "[ingest] a closing step was given but no episode is open: append "
            "at least one step first");
      }
    }
    writer_->end_episode(
        terminated ? store::EpisodeState::kTerminated : store::EpisodeState::kTruncated,
        weight.value_or(-1.0), closes ? store::Writer::Rows(rows_) : store::Writer::Rows());
  }

  std::optional<uint64_t> episode() {
    const OneThread::Turn turn(calls_);
    return writer_ ? writer_->episode_uid() : std::nullopt;
  }

  // From any thread: a call that waits in another one ends with an error first. From a signal
  // handler that interrupted such a call in this thread: the call ends as well, and the episode
  // with the writer. Returns uid and steps of an episode that this call has ended: none in a forked
  // child, where it is the parent's.
  std::optional<std::pair<uint64_t, uint64_t>> close() {
    closing_ = true;
    if (calls_.is_inside()) {
      return std::nullopt;
    }
    const py::gil_scoped_release release;
    const OneThread::Turn turn(calls_, true);
    std::optional<std::pair<uint64_t, uint64_t>> cut;
    if (writer_ && !shard_->forked() && writer_->episode_uid()) {
      cut.emplace(*writer_->episode_uid(), writer_->episode_steps());
    }
    writer_.reset();
    shard_.reset();
    return cut;
  }

  void set_timeout(std::optional<double> timeout_s) { timeout_s_ = timeout_s; }

 private:
  // What a call is given, kept alive for as long as the call.
  class Given {
   public:
    explicit Given(std::vector<InputRows>& inputs) : inputs_(inputs) {}
    ~Given() {
      for (InputRows& input : inputs_) {
        input.drop();
      }
    }
    Given(const Given&) = delete;
    Given& operator=(const Given&) = delete;

   private:
    std::vector<InputRows>& inputs_;
  };

  std::string name(size_t c) const { return shard_->schema()[c].name; }

  void require_open(std::string_view call) const {
    if (!writer_ || closing_) {
      throw base::InvalidArgument(
          "[ingest] this writer is closed: make another with buffer.writer()");
    }
    shard_->check_process(call);
  }

  // Reads the columns and the priority of one step, or of as many as there are; returns how many.
  uint64_t read(const py::kwargs& columns, bool many) {
    for (size_t c = 0; c < names_.size(); ++c) {
      const py::handle value = PyDict_GetItemWithError(columns.ptr(), names_[c].ptr());
      if (!value) {
        refuse_missing(c, columns);
      }
      inputs_[c].read(shard_->schema()[c], value, many);
      rows_[c] = inputs_[c].data();
    }
    static PyObject* key = PyUnicode_InternFromString("priority");
    const py::handle priority = PyDict_GetItemWithError(columns.ptr(), key);
    if (names_.size() + (priority ? 1 : 0) != columns.size()) {
      refuse_unknown(columns);
    }
    const uint64_t steps = many ? inputs_[0].steps() : 1;
    for (size_t c = 1; many && c < inputs_.size(); ++c) {
      if (inputs_[c].steps() != steps) {
        throw base::InvalidArgument(base::cat("[ingest] column '", name(c), "' has ",
                                              inputs_[c].steps(), " steps, column '", name(0),
                                              "' has ", steps, ": give all columns as many"));
      }
    }
    priorities_.clear();
    if (!priority || priority.is_none()) {
      return steps;
    }
    if (many) {
      read_priorities(priority, steps);
    } else {
      priorities_.push_back(checked_priority(priority));
    }
    return steps;
  }

  static float checked_priority(py::handle value, double number) {
    if (!std::isfinite(number) || number < 0 ||
        number > static_cast<double>(std::numeric_limits<float>::max())) {
      throw base::InvalidArgument(base::cat("[ingest] priority ",
                                            py::str(value).cast<std::string>(),
                                            ": a finite number, 0 or more, is allowed"));
    }
    return static_cast<float>(number);
  }

  static float checked_priority(py::handle value) {
    double number = PyFloat_AsDouble(value.ptr());
    if (number == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      number = std::numeric_limits<double>::quiet_NaN();
    }
    return checked_priority(value, number);
  }

  void read_priorities(py::handle value, uint64_t steps) {
    const auto array =
        py::array_t<double, py::array::c_style | py::array::forcecast>::ensure(value);
    if (!array || (array.ndim() != 0 &&
                   (array.ndim() != 1 || static_cast<uint64_t>(array.size()) != steps))) {
      PyErr_Clear();
      throw base::InvalidArgument(
          base::cat("[ingest] priority of shape ",
                    array ? py::str(array.attr("shape")).cast<std::string>() : "?",
                    ": one number, or one a step (", steps, "), is allowed"));
    }
    for (uint64_t i = 0; i < steps; ++i) {
      const double number = array.data()[array.ndim() == 0 ? 0 : i];
      priorities_.push_back(checked_priority(py::float_(number), number));
    }
  }

  [[noreturn]] void refuse_missing(size_t c, const py::kwargs& columns) const {
    throw base::InvalidArgument(base::cat("[ingest] column '", name(c), "' is missing: given ",
                                          keys(columns),
                                          "; every column of the schema must be given"));
  }

  [[noreturn]] void refuse_unknown(const py::kwargs& columns) const {
    for (const auto& [key, value] : columns) {
      const std::string given = py::str(key).cast<std::string>();
      if (given != "priority") {
        shard_->schema().index_of(given);
      }
    }
    throw base::InvalidArgument("[ingest] an argument was removed while it was read");
  }

  static std::string keys(const py::kwargs& columns) {
    std::string text;
    for (const auto& [key, value] : columns) {
      text += (text.empty() ? "" : ", ") + py::str(key).cast<std::string>();
    }
    return text.empty() ? "none" : text;
  }

  static constexpr const char* kRemedy =
      "call next() of a loader, in another thread if this one only appends, or give the buffer "
      "another rate_limit";

  std::string waits_for() const {
    const auto lock = shard_->lock();
    return shard_->rate_limiter().inserting_waits_for();
  }

  void write(uint64_t steps) {
    if (shard_->rate_limiter().active()) {
      uint64_t done = 0;
      const bool stored = wait_interruptibly(
          timeout_s_,
          [&](double slice) {
            return writer_->append_some(rows_, steps, priorities_, done, slice) || closing_;
          },
          [&] {
            base::log(base::Level::kWarning,
                      base::cat("[ingest] a writer has waited ", kLongWaitS,
                                " s for the rate limit: ", waits_for(), "; ", kRemedy));
          });
      if (done == steps) {
        return;
      }
      const std::string part = base::cat(done, " of ", steps, " steps are stored");
      if (stored) {
        throw base::InvalidArgument(
            base::cat("[ingest] this writer was closed while it waited for the rate "
                      "limit: ",
                      part));
      }
      PyErr_SetString(PyExc_TimeoutError,
                      base::cat("[ingest] the rate limit did not let all steps in within ",
                                *timeout_s_, " s (", part, "): ", waits_for(), "; ", kRemedy)
                          .c_str());
      throw py::error_already_set();
    }
    constexpr uint64_t kHoldGilBytes = 1 << 16;
    if (steps * shard_->schema().step_bytes() < kHoldGilBytes) {
      writer_->append(rows_, steps, priorities_);
    } else {
      const py::gil_scoped_release release;
      writer_->append(rows_, steps, priorities_);
    }
  }

  OneThread calls_{
      "[ingest] another thread's call of this writer has not returned: one thread at a time may "
      "use a writer; make one a thread"};
  std::atomic<bool> closing_{false};
  std::shared_ptr<store::Shard> shard_;
  std::unique_ptr<store::Writer> writer_;
  std::vector<py::object> names_;
  std::vector<InputRows> inputs_;
  std::vector<const std::byte*> rows_;
  std::vector<float> priorities_;
  std::optional<double> timeout_s_;
};

}  // namespace

void register_ingest(py::module_& module) {
  py::class_<PyWriter>(module, "Writer")
      .def(py::init<std::shared_ptr<store::Shard>, std::optional<uint64_t>>(), py::arg("shard"),
           py::arg("episode") = py::none())
      .def("append", &PyWriter::append,
           "Appends one step: every column of the schema by name, and optionally `priority`\n"
           "(default: the largest seen so far). Opens an episode if none is open.")
      .def("extend", &PyWriter::extend,
           "Appends T consecutive steps of the episode: every column as [T, *shape], and\n"
           "optionally `priority`, one number or one a step.")
      .def("_end_episode", &PyWriter::end_episode, py::arg("terminated"), py::arg("weight"),
           py::arg("final"))
      .def("_close", &PyWriter::close, "Ends an open episode, and returns its number and steps.")
      .def("_set_timeout", &PyWriter::set_timeout, py::arg("timeout_s"))
      .def_property_readonly("episode", &PyWriter::episode, "Number of the open episode, or None.");
}

}  // namespace gear::bindings
