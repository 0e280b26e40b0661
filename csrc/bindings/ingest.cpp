#include <pybind11/stl.h>

#include <cmath>

#include "base/errors.h"
#include "bindings/given_steps.h"
#include "bindings/limited_writing.h"
#include "bindings/one_thread.h"
#include "store/writing/writer.h"

namespace gear::bindings {
namespace {

// store::Writer for Python callers: reads the columns of a call, keeps the memory for that.
class PyWriter {
 public:
  PyWriter(std::shared_ptr<store::Shard> shard, std::optional<uint64_t> episode)
      : shard_(std::move(shard)),
        writer_(std::make_unique<store::Writer>(shard_, episode)),
        given_(shard_->shared_schema()) {}

  void append(const py::kwargs& columns) {
    const OneThread::Turn turn(calls_);
    const GivenSteps::Kept kept(given_);
    require_open("append");
    write(given_.read(columns, kOneStep));
  }

  void extend(const py::kwargs& columns) {
    const OneThread::Turn turn(calls_);
    const GivenSteps::Kept kept(given_);
    require_open("extend");
    write(given_.read(columns, kManySteps));
  }

  void end_episode(bool terminated, std::optional<double> weight,
                   const std::optional<py::dict>& last) {
    const OneThread::Turn turn(calls_);
    const GivenSteps::Kept kept(given_);
    require_open("end_episode");
    if (weight && (!std::isfinite(*weight) || *weight < 0)) {
      throw base::InvalidArgument(
          base::cat("[writer] weight ", *weight, ": a finite number, 0 or more, is allowed"));
    }
    const bool closes = last && !last->empty();
    if (closes) {
      given_.read_some(*last);
      if (!writer_->episode_uid()) {
        throw base::InvalidArgument(
            "[writer] a closing step was given but no episode is open: append "
            "at least one step first");
      }
    }
    writer_->end_episode(
        terminated ? store::EpisodeState::kTerminated : store::EpisodeState::kTruncated,
        weight.value_or(-1.0), closes ? given_.rows() : store::Writer::Rows());
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
  void require_open(std::string_view call) const {
    if (!writer_ || closing_) {
      throw base::InvalidArgument(
          "[writer] this writer is closed: make another with buffer.writer()");
    }
    shard_->check_process(call);
  }

  void write(uint64_t steps) {
    uint64_t done = 0;
    write_within_limit(
        *shard_, steps * shard_->schema().step_bytes(), timeout_s_, closing_,
        [&](std::optional<double> timeout_s) {
          return writer_->append_some(given_.rows(), steps, given_.priorities(), done, timeout_s);
        },
        [&] { return base::cat(done, " of ", steps, " steps are stored"); });
  }

  OneThread calls_{
      "[writer] another thread's call of this writer has not returned: one thread at a time may "
      "use a writer; make one a thread"};
  std::atomic<bool> closing_{false};
  std::shared_ptr<store::Shard> shard_;
  std::unique_ptr<store::Writer> writer_;
  GivenSteps given_;
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
