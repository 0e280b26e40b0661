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
                 std::optional<double> timeout_s)
      : shard_(std::move(shard)),
        writer_(
            std::make_unique<store::VectorWriter>(shard_, num_environments, next_step, episodes)),
        given_(shard_->shared_schema()),
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
    call.mask = read_flags(columns, mask_, kMask);
    const uint64_t rows = given_.read(
        columns, true, {terminated_, truncated_, mask_, final_},
        call.mask == nullptr ? std::span<const bool>() : std::span(call.mask, num_environments()));
    if (rows != num_environments()) {
      refuse_length(shard_->schema()[0].name, rows);
    }
    call.columns = given_.rows();
    call.priorities = given_.priorities();
    call.terminated = read_flags(columns, terminated_, kTerminated);
    call.truncated = read_flags(columns, truncated_, kTruncated);
    read_closing(columns, call);
    writer_->begin(call);
    write();
  }

  void end_episodes(bool terminated, const py::kwargs& given) {
    const OneThread::Turn turn(calls_);
    const Kept kept(*this);
    require_open("end_episode");
    store::VectorWriter::Call call;
    call.mask = read_flags(given, mask_, kMask);
    const py::handle last = PyDict_GetItemWithError(given.ptr(), final_);
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
      writer_.flag_.drop();
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

  enum Flag : uint8_t { kTerminated, kTruncated, kMask };

  uint64_t num_environments() const { return writer_->num_environments(); }

  void require_open(std::string_view call) const {
    if (!writer_ || closing_now_) {
      throw base::InvalidArgument(
          "[ingest] this writer is closed: make another with buffer.writer()");
    }
    shard_->check_process(call);
  }

  [[noreturn]] void refuse_length(const std::string& name, uint64_t rows) const {
    throw base::InvalidArgument(base::cat("[ingest] '", name, "' has ", rows,
                                          " rows: give one for ", "each of the ",
                                          num_environments(), " environments"));
  }

  // A copy, which no other thread changes while the call goes on; null where it is not given.
  const bool* read_flags(const py::kwargs& given, PyObject* key, Flag flag) {
    const py::handle value = PyDict_GetItemWithError(given.ptr(), key);
    if (!value || value.is_none()) {
      return nullptr;
    }
    const std::string name = py::handle(key).cast<std::string>();
    flag_.read({name, {}, base::DType::kBool}, value, true);
    if (flag_.steps() != num_environments()) {
      refuse_length(name, flag_.steps());
    }
    std::unique_ptr<bool[]>& copy = flags_[flag];
    if (!copy) {
      copy = std::make_unique<bool[]>(num_environments());
    }
    std::memcpy(copy.get(), flag_.data(), num_environments());
    return copy.get();
  }

  void read_closing(const py::kwargs& columns, store::VectorWriter::Call& call) {
    const py::handle last = PyDict_GetItemWithError(columns.ptr(), final_);
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

  static bool is_mapping(py::handle value) {
    return py::isinstance<py::dict>(value) ||
           py::isinstance(value, py::module_::import("collections.abc").attr("Mapping"));
  }

  // None alone is allowed, as of infos.get("final_obs").
  static void refuse_final(py::handle last) {
    if (is_mapping(last)) {
      const py::dict given(py::reinterpret_borrow<py::object>(last));
      if (std::all_of(given.begin(), given.end(),
                      [](const auto& item) { return item.second.is_none(); })) {
        return;
      }
    }
    throw base::InvalidArgument(
        "[ingest] final is not for autoreset 'next_step': the row behind an episode's end closes "
        "it");
  }

  // Columns of the closing steps, a row an environment; a column that is None is not given. Of an
  // array of objects, the rows of ended environments are read alone.
  void read_final(py::handle last, const std::vector<uint64_t>& ending,
                  store::VectorWriter::Call& call) {
    if (!is_mapping(last)) {
      throw base::InvalidArgument(base::cat("[ingest] final ", py::repr(last).cast<std::string>(),
                                            ": a mapping by column is allowed"));
    }
    std::ranges::fill(closing_, nullptr);
    last_.resize(closing_.size());
    bool any = false;
    for (const auto& [key, value] : py::dict(py::reinterpret_borrow<py::object>(last))) {
      const std::string name = py::str(key).cast<std::string>();
      const size_t c = shard_->schema().index_of(name);
      if (value.is_none() || ending.empty()) {
        continue;
      }
      const store::Column& column = shard_->schema()[c];
      last_[c].read(column, dense(column, value, ending), true);
      if (last_[c].steps() != num_environments()) {
        refuse_length(name, last_[c].steps());
      }
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
      input.read(column, row, false);
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

  inline static PyObject* const terminated_ = PyUnicode_InternFromString("terminated");
  inline static PyObject* const truncated_ = PyUnicode_InternFromString("truncated");
  inline static PyObject* const mask_ = PyUnicode_InternFromString("mask");
  inline static PyObject* const final_ = PyUnicode_InternFromString("final");

  OneThread calls_{
      "[ingest] another thread's call of this writer has not returned: one thread at a time may "
      "use a writer; make one a thread"};
  std::atomic<bool> closing_now_{false};
  std::shared_ptr<store::Shard> shard_;
  std::unique_ptr<store::VectorWriter> writer_;
  GivenSteps given_;
  InputRows flag_;
  std::unique_ptr<bool[]> flags_[3];       // by Flag
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
                    std::vector<std::optional<uint64_t>>, std::optional<double>>(),
           py::arg("shard"), py::arg("num_environments"), py::arg("next_step"),
           py::arg("closing_columns"), py::arg("episodes"), py::arg("timeout_s"))
      .def("append", &PyVectorWriter::append,
           "Appends a step of each environment: every column as [N, *shape], and optionally\n"
           "`terminated`, `truncated`, `mask` (bool [N]), `priority` and `final`.")
      .def("_end_episodes", &PyVectorWriter::end_episodes, py::arg("terminated"))
      .def("_close", &PyVectorWriter::close, "Ends open episodes; returns how many it has cut.")
      .def_property_readonly("episodes", &PyVectorWriter::episodes,
                             "Numbers of the open episodes, by environment; None: none is open.");
}

}  // namespace gear::bindings
