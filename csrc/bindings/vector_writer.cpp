#include "store/writing/vector_writer.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>

#include "base/errors.h"
#include "base/log.h"
#include "bindings/arrays/dtypes.h"
#include "bindings/arrays/gpu_arrays.h"
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
                 std::optional<double> timeout_s, py::function stream_of)
      : shard_(std::move(shard)),
        gpu_(std::make_unique<GpuArrays>(*shard_, std::move(stream_of))),
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

  // A call that is put off yet is stored, as far as a rate limit lets it in at once.
  ~PyVectorWriter() {
    closing_now_ = true;
    if (put_off_ && writer_ && !shard_->forked()) {
      try {
        flush_call();
      } catch (const std::exception& error) {
        base::log(
            base::Level::kWarning,
            base::cat("[writer] a dropped writer could not store its last call: ", error.what()));
      }
    }
    writer_.reset();
    give_up_gpu();
  }

  void append(const py::kwargs& columns) {
    const OneThread::Turn turn(calls_);
    require_open("append");
    flush_call();
    const Kept kept(*this);
    gpu_->begin();
    call_ = {};
    put_off_ = false;
    bool put_off = read_flags(columns, kMask, mask_, nullptr, call_.mask);
    const bool* looked_at = put_off ? nullptr : call_.mask;
    given_.read(columns, {Lead::Of::kEnvironments, num_environments(), looked_at, &*gpu_},
                {kTerminated, kTruncated, kMask, kFinal});
    put_off |= read_flags(columns, kTerminated, terminated_, looked_at, call_.terminated);
    put_off |= read_flags(columns, kTruncated, truncated_, looked_at, call_.truncated);
    given_.add_to(*gpu_, num_environments());
    store_flags();
    priorities_on_gpu_ = given_.priorities_on_gpu();
    if (priorities_on_gpu_ != nullptr) {
      gpu_->add(priorities_on_gpu_, num_environments() * sizeof(float), true, &priorities_on_gpu_);
      put_off = true;
    }
    read_closing(columns, put_off);
    if (put_off) {
      own_arrays();
    }
    gpu_->take();
    if (put_off) {
      put_off_ = true;
    } else {
      store_call();
    }
  }

  void flush() {
    const OneThread::Turn turn(calls_);
    require_open("flush");
    flush_call();
  }

  // The same before close(), where there is anything to store.
  void flush_last() {
    if (!calls_.is_inside() && put_off_ && !shard_->forked()) {
      flush();
    }
  }

  void end_episodes(bool terminated, const py::kwargs& given) {
    const OneThread::Turn turn(calls_);
    require_open("end_episode");
    flush_call();
    const Kept kept(*this);
    gpu_->begin();
    call_ = {};
    if (read_flags(given, kMask, mask_, nullptr, call_.mask)) {
      gpu_->take();
      gpu_->wait();
      fill_flags();
      gpu_->begin();
    }
    const py::handle last = PyDict_GetItemWithError(given.ptr(), kFinal);
    if (last && !last.is_none()) {
      std::vector<uint64_t> ending;
      for (uint64_t i = 0; i < num_environments(); ++i) {
        if ((call_.mask == nullptr || call_.mask[i]) && writer_->episode_uid(i)) {
          ending.push_back(i);
        }
      }
      read_final(last, &ending);
      gpu_->take();
    }
    writer_->end_episodes(call_, terminated);
  }

  std::vector<std::optional<uint64_t>> episodes() {
    const OneThread::Turn turn(calls_);
    if (writer_ && !shard_->forked()) {
      flush_call();
    }
    std::vector<std::optional<uint64_t>> uids;
    for (uint64_t i = 0; writer_ && i < num_environments(); ++i) {
      uids.push_back(writer_->episode_uid(i));
    }
    return uids;
  }

  std::vector<std::optional<std::string>> ended() {
    const OneThread::Turn turn(calls_);
    if (writer_ && !shard_->forked()) {
      flush_call();
    }
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
    put_off_ = false;
    writer_.reset();
    {
      const py::gil_scoped_acquire acquire;
      give_up_gpu();
    }
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
      writer_.gpu_->drop();
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
          "[writer] this writer is closed: make another with buffer.writer()");
    }
    shard_->check_process(call);
  }

  // By environment. An array that the caller changes while its call runs changes nothing in these.
  struct Flags {
    explicit Flags(uint64_t count) : values(std::make_unique<bool[]>(count)) {}

    void fill(const std::byte* given, const bool* mask, uint64_t count) {
      for (uint64_t i = 0; i < count; ++i) {
        values[i] = given[i] != std::byte{0} && (mask == nullptr || mask[i]);
      }
    }

    std::unique_ptr<bool[]> values;
    const std::byte* to_host = nullptr;  // where those of a GPU come to
  };

  // A GPU is the parent's: in a forked child nothing of it is touched.
  void give_up_gpu() {
    if (!gpu_) {
      return;
    }
    if (shard_->forked()) {
      static_cast<void>(gpu_.release());
      return;
    }
    {
      const py::gil_scoped_release release;
      gpu_->end();
    }
    gpu_.reset();
  }

  // What the host has of a call that is put off is the caller's no more.
  void own_arrays() {
    given_.own(num_environments());
    for (size_t c = 0; c < last_.size(); ++c) {
      if (closing_[c] != nullptr && closing_[c] == last_[c].data() && !last_[c].on_gpu()) {
        last_[c].own(num_environments() * shard_->schema()[c].step_bytes());
        closing_[c] = last_[c].data();
      }
    }
  }

  // Stores the call that waits for its flags. What it throws is of that call.
  void flush_call() {
    if (!put_off_) {
      return;
    }
    gpu_->wait();  // a call that is interrupted here goes on waiting
    put_off_ = false;
    try {
      fill_flags();
      if (priorities_on_gpu_ != nullptr) {
        const auto* priorities = reinterpret_cast<const float*>(priorities_on_gpu_);
        given_.set_priorities({priorities, num_environments()}, call_.mask);
      }
      store_call(kOfTheCallBefore);
    } catch (const base::InvalidArgument& error) {
      throw base::InvalidArgument(base::cat(error.what(), kOfTheCallBefore));
    } catch (const base::OutOfMemory& error) {
      throw base::OutOfMemory(base::cat(error.what(), kOfTheCallBefore));
    }
  }
  static constexpr std::string_view kOfTheCallBefore =
      " (of the last append, whose flags, mask or priorities lay on the GPU; nothing that is given "
      "now is taken)";

  // What was read, and lies where it is to be read.
  void store_call(std::string_view which = "") {
    call_.columns = {given_.rows(), given_.on_gpu(), gpu_->taken()};
    call_.priorities = given_.priorities();
    if (!shown_.empty()) {
      std::ranges::fill(closing_, nullptr);
      uint64_t shown = 0;
      for (const size_t c : shown_) {
        closing_[c] = given_.rows()[c];
        shown |= uint64_t{1} << c;
      }
      call_.closing = {closing_, given_.on_gpu() & shown, gpu_->taken()};
    }
    writer_->begin(call_);
    write(which);
  }

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

  // `found`: null where it is not given; false outside of the mask. True where they lie on a GPU,
  // to be there behind fill_flags().
  bool read_flags(const py::kwargs& given, PyObject* key, Flags& flags, const bool* mask,
                  const bool*& found) {
    flags.to_host = nullptr;
    const py::handle value = PyDict_GetItemWithError(given.ptr(), key);
    if (!value || value.is_none()) {
      return false;
    }
    found = flags.values.get();
    const std::string name = py::handle(key).cast<std::string>();
    InputRows input;
    input.read({name, {}, base::DType::kBool}, value,
               {Lead::Of::kEnvironments, num_environments(), nullptr, &*gpu_});
    if (input.on_gpu()) {
      gpu_->add(input.data(), num_environments(), true, &flags.to_host);
      return true;
    }
    flags.fill(input.data(), mask, num_environments());
    return false;
  }

  // Those that lay on a GPU, once the host may read them.
  void fill_flags() {
    for (Flags* flags : {&mask_, &terminated_, &truncated_}) {
      if (flags->to_host != nullptr) {
        const bool* mask = flags == &mask_ ? nullptr : call_.mask;
        flags->fill(flags->to_host, mask, num_environments());
        flags->to_host = nullptr;
      }
    }
  }

  // A column that has a flag's name holds what was read as the flag.
  void store_flags() {
    const std::vector<store::Column>& columns = shard_->schema().columns();
    for (size_t c = 0; c < columns.size(); ++c) {
      const bool* flags = columns[c].name == "terminated"  ? call_.terminated
                          : columns[c].name == "truncated" ? call_.truncated
                                                           : nullptr;
      if (flags != nullptr && (given_.on_gpu() >> c & 1) == 0) {
        given_.replace(c, reinterpret_cast<const std::byte*>(flags));
      }
    }
  }

  void read_closing(const py::kwargs& columns, bool put_off) {
    const py::handle last = PyDict_GetItemWithError(columns.ptr(), kFinal);
    const bool is_given = last && !last.is_none();
    if (!writer_->next_step()) {
      if (is_given && put_off) {
        read_final(last, nullptr);
      } else if (is_given) {
        writer_->list_ending(call_, ending_);
        read_final(last, &ending_);
      }
      return;
    }
    if (is_given) {
      refuse_final(last);
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
      throw base::InvalidArgument(base::cat("[writer] final ", py::repr(last).cast<std::string>(),
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
          "[writer] final is not for autoreset 'next_step': the row behind an episode's end closes "
          "it");
    }
  }

  // Columns of the closing steps, a row an environment; a column that is None is not given. Only
  // the rows of environments that end are read; null: which these are is not known yet.
  void read_final(py::handle last, const std::vector<uint64_t>* ending) {
    std::ranges::fill(closing_, nullptr);
    last_.resize(closing_.size());
    std::fill_n(last_read_.values.get(), num_environments(), ending == nullptr);
    if (ending != nullptr) {
      for (const uint64_t i : *ending) {
        last_read_.values[i] = true;
      }
    }
    bool any = false;
    for (const auto& [key, value] : by_column(last)) {
      const size_t c = shard_->schema().index_of(py::str(key).cast<std::string>());
      if (value.is_none() || (ending != nullptr && ending->empty())) {
        continue;
      }
      const store::Column& column = shard_->schema()[c];
      last_[c].read(column, dense(column, value, ending),
                    {Lead::Of::kEnvironments, num_environments(), last_read_.values.get(), &*gpu_});
      closing_[c] = last_[c].data();
      if (last_[c].on_gpu()) {
        gpu_->add(closing_[c], num_environments() * column.step_bytes(), false, &closing_[c]);
        call_.closing.on_device |= uint64_t{1} << c;
      }
      any = true;
    }
    if (any) {
      call_.closing.columns = closing_;
      call_.closing.taken = gpu_->taken();
    }
  }

  py::object dense(const store::Column& column, py::handle value,
                   const std::vector<uint64_t>* ending) const {
    const auto given = py::reinterpret_borrow<py::object>(value);
    if (!py::isinstance<py::array>(value) ||
        py::reinterpret_borrow<py::array>(value).dtype().kind() != 'O') {
      return given;
    }
    if (ending == nullptr) {
      throw base::InvalidArgument(base::cat(
          "[writer] final '", column.name, "' is an array of objects, and the flags lie on a GPU, ",
          "so that nobody knows yet whose rows count: give one array [environments, ...]"));
    }
    const auto objects = py::reinterpret_borrow<py::array>(value);
    if (objects.ndim() != 1 || static_cast<uint64_t>(objects.size()) != num_environments()) {
      throw base::InvalidArgument(
          base::cat("[writer] final '", column.name, "' is an array of ", "objects of shape ",
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
    for (const uint64_t i : *ending) {
      const py::object row = given[py::int_(i)];
      if (row.is_none()) {
        throw base::InvalidArgument(base::cat("[writer] final '", column.name, "' is None for ",
                                              "environment ", i, ", whose episode ends"));
      }
      input.read(column, row, kOneStep);
      std::memcpy(bytes + i * row_bytes, input.data(), row_bytes);
    }
    return rows;
  }

  void write(std::string_view which) {
    write_within_limit(
        *shard_, num_environments() * shard_->schema().step_bytes(), timeout_s_, closing_now_,
        [&](std::optional<double> timeout_s) { return writer_->write(timeout_s); },
        [&] {
          return base::cat(writer_->num_done(), " of ", writer_->num_steps(),
                           " environments' steps are stored", which);
        });
  }

  inline static PyObject* const kTerminated = PyUnicode_InternFromString("terminated");
  inline static PyObject* const kTruncated = PyUnicode_InternFromString("truncated");
  inline static PyObject* const kMask = PyUnicode_InternFromString("mask");
  inline static PyObject* const kFinal = PyUnicode_InternFromString("final");

  OneThread calls_{
      "[writer] another thread's call of this writer has not returned: one thread at a time may "
      "use a writer; make one a thread"};
  std::atomic<bool> closing_now_{false};
  std::shared_ptr<store::Shard> shard_;
  std::unique_ptr<GpuArrays> gpu_;
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
  const std::byte* priorities_on_gpu_ = nullptr;
  store::VectorWriter::Call call_;
  bool put_off_ = false;  // call_ waits for flags or priorities that lie on a GPU
  std::optional<double> timeout_s_;
};

}  // namespace

void register_vector_writer(py::module_& module) {
  py::class_<PyVectorWriter>(module, "VectorWriter")
      .def(py::init<std::shared_ptr<store::Shard>, uint64_t, bool, std::vector<std::string>,
                    std::vector<std::optional<uint64_t>>, std::vector<std::optional<std::string>>,
                    std::optional<double>, py::function>(),
           py::arg("shard"), py::arg("num_environments"), py::arg("next_step"),
           py::arg("closing_columns"), py::arg("episodes"), py::arg("ended"), py::arg("timeout_s"),
           py::arg("stream_of"))
      .def("append", &PyVectorWriter::append,
           "Appends a step of each environment: every column as [N, *shape], and optionally\n"
           "`terminated`, `truncated`, `mask` (bool [N]), `priority` and `final`.")
      .def(
          "flush", &PyVectorWriter::flush,
          "Stores the steps of a call whose flags, mask or priorities lie on a GPU, and waits for\n"
          "these: else the next call of the writer does.")
      .def("_flush_last", &PyVectorWriter::flush_last)
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
