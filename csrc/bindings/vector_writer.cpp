#include "store/vector_writer.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "bindings/dtypes.h"
#include "bindings/given_steps.h"
#include "bindings/limited_writing.h"
#include "bindings/one_thread.h"

namespace gear::bindings {
namespace {

// store::VectorWriter for Python callers: reads the arrays of a call, keeps the memory for that.
class PyVectorWriter {
 public:
  PyVectorWriter(std::shared_ptr<store::Shard> shard, uint64_t num_environments, bool next_step,
                 const std::vector<std::string>& closing_columns,
                 const std::vector<std::optional<uint64_t>>& episodes,
                 const std::vector<std::optional<std::string>>& ended,
                 std::optional<double> timeout_s)
      : shard_(std::move(shard)),
        writer_(std::make_unique<store::VectorWriter>(shard_, num_environments, next_step, episodes,
                                                      states(ended))),
        given_(shard_->shared_schema()),
        terminated_(num_environments),
        truncated_(num_environments),
        mask_(num_environments),
        last_read_(num_environments),
        closing_(shard_->schema().size()),
        timeout_s_(timeout_s) {
    for (const std::string& name : closing_columns) {
      shown_.push_back(shard_->schema().index_of(name));
    }
  }

  void append(const py::kwargs& columns) {
    const OneThread::Turn turn(calls_);
    const Kept kept(*this);
    require_open("append");
    store::VectorWriter::Call call;
    call.mask = read_flags(columns, kMask, mask_, nullptr);
    given_.read(columns, {Lead::Of::kEnvironments, num_environments(), call.mask},
                {kTerminated, kTruncated, kMask, kFinal});
    call.terminated = read_flags(columns, kTerminated, terminated_, call.mask);
    call.truncated = read_flags(columns, kTruncated, truncated_, call.mask);
    store_flags(call);
    call.columns = given_.rows();
    call.priorities = given_.priorities();
    read_closing(columns, call);
    writer_->begin(call);
    write();
  }

  void end_episodes(bool terminated, const py::kwargs& given) {
    const OneThread::Turn turn(calls_);
    const Kept kept(*this);
    require_open("end_episode");
    store::VectorWriter::Call call;
    call.mask = read_flags(given, kMask, mask_, nullptr);
    const py::handle last = PyDict_GetItemWithError(given.ptr(), kFinal);
    if (last && !last.is_none()) {
      std::vector<uint64_t> ending;
      for (uint64_t i = 0; i < num_environments(); ++i) {
        if ((call.mask == nullptr || call.mask[i]) && writer_->episode_uid(i)) {
          ending.push_back(i);
        }
      }
      read_final(last, ending, call);
    }
    writer_->end_episodes(call, terminated);
  }

  std::vector<std::optional<uint64_t>> episodes() {
    const OneThread::Turn turn(calls_);
    std::vector<std::optional<uint64_t>> uids;
    for (uint64_t i = 0; writer_ && i < num_environments(); ++i) {
      uids.push_back(writer_->episode_uid(i));
    }
    return uids;
  }

  std::vector<std::optional<std::string>> ended() {
    const OneThread::Turn turn(calls_);
    std::vector<std::optional<std::string>> found;
    for (uint64_t i = 0; writer_ && i < num_environments(); ++i) {
      std::optional<std::string>& name = found.emplace_back();
      if (writer_->ended(i) != store::EpisodeState::kOpen) {
        name = writer_->ended(i) == store::EpisodeState::kTruncated ? "truncated" : "terminated";
      }
    }
    return found;
  }

  // As Writer's; returns how many episodes it has cut.
  uint64_t close() {
    closing_now_ = true;
    if (calls_.is_inside()) {
      return 0;
    }
    const py::gil_scoped_release release;
    const OneThread::Turn turn(calls_, true);
    uint64_t cut = 0;
    for (uint64_t i = 0; writer_ && !shard_->forked() && i < num_environments(); ++i) {
      cut += writer_->is_running(i) ? 1 : 0;
    }
    writer_.reset();
    shard_.reset();
    return cut;
  }

 private:
  // Gives up what was read behind the call.
  class Kept {
   public:
    explicit Kept(PyVectorWriter& writer) : writer_(writer), given_(writer.given_) {}
    ~Kept() {
      for (InputRows& input : writer_.last_) {
        input.drop();
      }
    }
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;

   private:
    PyVectorWriter& writer_;
    GivenSteps::Kept given_;
  };

  uint64_t num_environments() const { return writer_->num_environments(); }

  void require_open(std::string_view call) const {
    if (!writer_ || closing_now_) {
      throw base::InvalidArgument(
          "[ingest] this writer is closed: make another with buffer.writer()");
    }
    shard_->check_process(call);
  }

  // By environment. An array that the caller changes while its call runs changes nothing in these.
  struct Flags {
    explicit Flags(uint64_t count) : values(std::make_unique<bool[]>(count)) {}
    std::unique_ptr<bool[]> values;
  };

  static std::vector<store::EpisodeState> states(
      const std::vector<std::optional<std::string>>& names) {
    std::vector<store::EpisodeState> found;
    for (const auto& name : names) {
      found.push_back(!name                  ? store::EpisodeState::kOpen
                      : *name == "truncated" ? store::EpisodeState::kTruncated
                                             : store::EpisodeState::kTerminated);
    }
    return found;
  }

  // Null where it is not given; false outside of the mask.
  const bool* read_flags(const py::kwargs& given, PyObject* key, Flags& flags,
                         const bool* mask) const {
    const py::handle value = PyDict_GetItemWithError(given.ptr(), key);
    if (!value || value.is_none()) {
      return nullptr;
    }
    const std::string name = py::handle(key).cast<std::string>();
    InputRows input;
    input.read({name, {}, base::DType::kBool}, value,
               {Lead::Of::kEnvironments, num_environments()});
    for (uint64_t i = 0; i < num_environments(); ++i) {
      flags.values[i] = input.data()[i] != std::byte{0} && (mask == nullptr || mask[i]);
    }
    return flags.values.get();
  }

  // A column that has a flag's name holds what was read as the flag.
  void store_flags(const store::VectorWriter::Call& call) {
    const std::vector<store::Column>& columns = shard_->schema().columns();
    for (size_t c = 0; c < columns.size(); ++c) {
      const bool* flags = columns[c].name == "terminated"  ? call.terminated
                          : columns[c].name == "truncated" ? call.truncated
                                                           : nullptr;
      if (flags != nullptr) {
        given_.replace(c, reinterpret_cast<const std::byte*>(flags));
      }
    }
  }

  void read_closing(const py::kwargs& columns, store::VectorWriter::Call& call) {
    const py::handle last = PyDict_GetItemWithError(columns.ptr(), kFinal);
    const bool is_given = last && !last.is_none();
    if (!writer_->next_step()) {
      if (is_given) {
        writer_->list_ending(call, ending_);
        read_final(last, ending_, call);
      }
      return;
    }
    if (is_given) {
      refuse_final(last);
    }
    std::ranges::fill(closing_, nullptr);
    for (const size_t c : shown_) {
      closing_[c] = call.columns[c];
    }
    if (!shown_.empty()) {
      call.closing = closing_;
    }
  }

  static py::dict by_column(py::handle last) {
    static PyObject* mapping =
        py::object(py::module_::import("collections.abc").attr("Mapping")).release().ptr();
    const int is_mapping = PyObject_IsInstance(last.ptr(), mapping);
    if (is_mapping < 0) {
      throw py::error_already_set();
    }
    if (is_mapping == 0) {
      throw base::InvalidArgument(base::cat("[ingest] final ", py::repr(last).cast<std::string>(),
                                            ": a mapping by column is allowed"));
    }
    return py::dict(py::reinterpret_borrow<py::object>(last));
  }

  // None alone is allowed, as of infos.get("final_obs").
  static void refuse_final(py::handle last) {
    const py::dict given = by_column(last);
    if (!std::all_of(given.begin(), given.end(),
                     [](const auto& item) { return item.second.is_none(); })) {
      throw base::InvalidArgument(
          "[ingest] final is not for autoreset 'next_step': the row behind an episode's end closes "
          "it");
    }
  }

  // Columns of the closing steps, a row an environment; a column that is None is not given. The
  // rows of ended environments are read alone.
  void read_final(py::handle last, const std::vector<uint64_t>& ending,
                  store::VectorWriter::Call& call) {
    std::ranges::fill(closing_, nullptr);
    last_.resize(closing_.size());
    std::fill_n(last_read_.values.get(), num_environments(), false);
    for (const uint64_t i : ending) {
      last_read_.values[i] = true;
    }
    bool any = false;
    for (const auto& [key, value] : by_column(last)) {
      const size_t c = shard_->schema().index_of(py::str(key).cast<std::string>());
      if (value.is_none() || ending.empty()) {
        continue;
      }
      const store::Column& column = shard_->schema()[c];
      last_[c].read(column, dense(column, value, ending),
                    {Lead::Of::kEnvironments, num_environments(), last_read_.values.get()});
      closing_[c] = last_[c].data();
      any = true;
    }
    if (any) {
      call.closing = closing_;
    }
  }

  py::object dense(const store::Column& column, py::handle value,
                   const std::vector<uint64_t>& ending) const {
    const auto given = py::reinterpret_borrow<py::object>(value);
    if (!py::isinstance<py::array>(value) ||
        py::reinterpret_borrow<py::array>(value).dtype().kind() != 'O') {
      return given;
    }
    const auto objects = py::reinterpret_borrow<py::array>(value);
    if (objects.ndim() != 1 || static_cast<uint64_t>(objects.size()) != num_environments()) {
      throw base::InvalidArgument(
          base::cat("[ingest] final '", column.name, "' is an array of ", "objects of shape ",
                    py::str(objects.attr("shape")).cast<std::string>(),
                    ": give one object for each of the ", num_environments(), " environments"));
    }
    std::vector<py::ssize_t> shape{static_cast<py::ssize_t>(num_environments())};
    shape.insert(shape.end(), column.shape.begin(), column.shape.end());
    py::array rows(numpy_dtype(column.dtype), shape);
    auto* bytes = static_cast<std::byte*>(rows.mutable_data());
    const uint64_t row_bytes = static_cast<uint64_t>(rows.nbytes()) / num_environments();
    std::memset(bytes, 0, rows.nbytes());
    InputRows input;
    for (const uint64_t i : ending) {
      const py::object row = given[py::int_(i)];
      if (row.is_none()) {
        throw base::InvalidArgument(base::cat("[ingest] final '", column.name, "' is None for ",
                                              "environment ", i, ", whose episode ends"));
      }
      input.read(column, row, kOneStep);
      std::memcpy(bytes + i * row_bytes, input.data(), row_bytes);
    }
    return rows;
  }

  void write() {
    write_within_limit(
        *shard_, num_environments() * shard_->schema().step_bytes(), timeout_s_, closing_now_,
        [&](std::optional<double> timeout_s) { return writer_->write(timeout_s); },
        [&] {
          return base::cat(writer_->num_done(), " of ", writer_->num_steps(),
                           " environments' steps are stored");
        });
  }

  inline static PyObject* const kTerminated = PyUnicode_InternFromString("terminated");
  inline static PyObject* const kTruncated = PyUnicode_InternFromString("truncated");
  inline static PyObject* const kMask = PyUnicode_InternFromString("mask");
  inline static PyObject* const kFinal = PyUnicode_InternFromString("final");

  OneThread calls_{
      "[ingest] another thread's call of this writer has not returned: one thread at a time may "
      "use a writer; make one a thread"};
  std::atomic<bool> closing_now_{false};
  std::shared_ptr<store::Shard> shard_;
  std::unique_ptr<store::VectorWriter> writer_;
  GivenSteps given_;
  Flags terminated_;
  Flags truncated_;
  Flags mask_;
  Flags last_read_;                        // the rows of `final` that are looked at
  std::vector<InputRows> last_;            // by column, of `final`
  std::vector<size_t> shown_;              // columns of the closing step, with next_step
  std::vector<const std::byte*> closing_;  // by column
  std::vector<uint64_t> ending_;
  std::optional<double> timeout_s_;
};

}  // namespace

void register_vector_writer(py::module_& module) {
  py::class_<PyVectorWriter>(module, "VectorWriter")
      .def(py::init<std::shared_ptr<store::Shard>, uint64_t, bool, std::vector<std::string>,
                    std::vector<std::optional<uint64_t>>, std::vector<std::optional<std::string>>,
                    std::optional<double>>(),
           py::arg("shard"), py::arg("num_environments"), py::arg("next_step"),
           py::arg("closing_columns"), py::arg("episodes"), py::arg("ended"), py::arg("timeout_s"))
      .def("append", &PyVectorWriter::append,
           "Appends a step of each environment: every column as [N, *shape], and optionally\n"
           "`terminated`, `truncated`, `mask` (bool [N]), `priority` and `final`.")
      .def("_end_episodes", &PyVectorWriter::end_episodes, py::arg("terminated"))
      .def("_close", &PyVectorWriter::close, "Ends open episodes; returns how many it has cut.")
      .def_property_readonly("episodes", &PyVectorWriter::episodes,
                             "Numbers of the open episodes, by environment; None: none is open.")
      .def_property_readonly(
          "ended", &PyVectorWriter::ended,
          "How environments have ended whose episodes the row behind the end will close, in mode\n"
          "'next_step': 'terminated' or 'truncated', by environment; None: it has not ended.");
}

}  // namespace gear::bindings
