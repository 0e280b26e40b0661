#include "torch/gpu/node_sum.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"

namespace gear::process_group {
namespace {

constexpr uint64_t kSteps = 8;  // of a large tensor, or more: the first and the last overlap little
// Two processes on one GPU take turns at its cores: a step, which adds, takes 0.3 ms at least.
constexpr uint64_t kLeastPart = 4 << 20;
constexpr uint64_t kAlignment = 64;  // of pieces, in bytes

at::ScalarType type_of(Element element) {
  constexpr at::ScalarType kTypes[] = {at::kBool,  at::kByte,  at::kChar, at::kShort,
                                       at::kInt,   at::kLong,  at::kHalf, at::kBFloat16,
                                       at::kFloat, at::kDouble};
  return kTypes[static_cast<size_t>(element)];
}

uint64_t divided_up(uint64_t count, uint64_t by) { return (count + by - 1) / by; }

// The same on all ranks that have as many bytes.
uint64_t part_bytes_of(uint64_t bytes, uint64_t size, uint64_t piece_bytes) {
  const uint64_t wanted = std::max(bytes / (size * kSteps), kLeastPart);
  const uint64_t most = divided_up(bytes, size);
  return divided_up(std::min({wanted, most, piece_bytes}), kAlignment) * kAlignment;
}

}  // namespace

NodeSum::NodeSum(std::shared_ptr<Ring> ring, const Signature& signature,
                 std::shared_ptr<NodeStage> node, std::shared_ptr<Stage> stage,
                 const at::Tensor& dense, const Arithmetic& arithmetic, double timeout_s)
    : Call(std::move(ring), signature.kind, timeout_s),
      node_(std::move(node)),
      memory_(*node_->memory),
      stage_(std::move(stage)),
      // Without the tensor's version: as with other backends, autograd sees no write.
      elements_(dense.variable_data().view({-1}).view(at::kByte).view(type_of(arithmetic.element))),
      arithmetic_(arithmetic),
      place_(ring_->place),
      number_(ring_->group.take_number(kind_)),
      comparison_(*ring_, number_, signature) {
  const auto size = static_cast<uint64_t>(place_.size);
  part_elements_ = part_bytes_of(dense.nbytes(), size, memory_.piece_bytes()) / arithmetic_.bytes();
  num_steps_ = divided_up(static_cast<uint64_t>(elements_.numel()), part_elements_ * size);
  first_ = memory_.take_steps(num_steps_);
}

Step NodeSum::advance() {
  if (!node_->lock && !stage_->device().is_cpu()) {
    const c10::DeviceGuard on_device(stage_->device());
    node_->lock.emplace(memory_.data(), memory_.bytes());
  }
  const auto step_of = [this](const Line& line) { return first_ + line.asked; };
  bool moved = false;
  for (bool more = true; more;) {
    more = end(taken_, Progress::kTaken);
    more |= end(put_, Progress::kReduced);
    more |= end(added_, std::nullopt);
    more |= end(given_, Progress::kGiven);
    more |= ask(taken_, memory_.have_done(Progress::kReduced, step_of(taken_)),
                [this](uint64_t step) { return take(step); });
    more |=
        ask(put_, put_.asked < added_.ended && memory_.have_left(Progress::kTaken, step_of(put_)),
            [this](uint64_t step) { return put(step); });
    more |= ask(added_, memory_.have_done(Progress::kGiven, step_of(added_)),
                [this](uint64_t step) { return add(step); });
    more |= ask(given_, memory_.have_left(Progress::kReduced, step_of(given_)),
                [this](uint64_t step) { return give(step); });
    moved |= more;
  }
  agreed_ = agreed_ || comparison_.advance();
  if (taken_.ended < num_steps_ || !agreed_) {
    return moved ? Step::kMoved : Step::kIdle;
  }
  ring_->roll_call.over(number_);
  return Step::kEnded;
}

bool NodeSum::ask(Line& line, bool may,
                  const std::function<std::unique_ptr<Mark>(uint64_t step)>& copies) {
  if (!may || line.asked == num_steps_) {
    return false;
  }
  line.marks.push_back(copies(line.asked));
  ++line.asked;
  return true;
}

bool NodeSum::end(Line& line, std::optional<Progress> progress) {
  const uint64_t step = first_ + line.ended;
  // The steps of a call before this one may be under way still.
  if (line.marks.empty() || !line.marks.front()->reached() ||
      (progress && !memory_.is_next(*progress, step))) {
    return false;
  }
  line.marks.pop_front();
  ++line.ended;
  if (progress) {
    memory_.advance(*progress);
  }
  return true;
}

at::Tensor NodeSum::part(uint64_t step, int rank) const {
  const auto size = static_cast<uint64_t>(place_.size);
  const uint64_t begin = step * part_elements_ * size;
  const uint64_t count =
      std::min(part_elements_ * size, static_cast<uint64_t>(elements_.numel()) - begin);
  const uint64_t aligned = kAlignment / arithmetic_.bytes();
  const uint64_t share = divided_up(divided_up(count, size), aligned) * aligned;
  const uint64_t from = std::min(static_cast<uint64_t>(rank) * share, count);
  const uint64_t length = std::min(share, count - from);
  return elements_.narrow(0, static_cast<int64_t>(begin + from), static_cast<int64_t>(length));
}

at::Tensor NodeSum::piece(uint64_t step, int of_rank, int for_rank, const at::Tensor& like) const {
  return at::from_blob(memory_.piece(of_rank, for_rank, first_ + step), {like.numel()},
                       at::TensorOptions().dtype(like.scalar_type()));
}

// What this rank has for the others.
std::unique_ptr<Mark> NodeSum::give(uint64_t step) {
  std::unique_ptr<Mark> mark;
  for (int i = 1; i < place_.size; ++i) {
    const int to = (place_.rank + i) % place_.size;
    const at::Tensor theirs = part(step, to);
    mark = stage_->copier().copy_in(piece(step, place_.rank, to, theirs), theirs);
  }
  return mark;
}

// What the others have for this rank, and its reduction.
std::unique_ptr<Mark> NodeSum::add(uint64_t step) {
  Copier& copier = stage_->copier();
  at::Tensor own = part(step, place_.rank);
  if (!scratch_.defined()) {
    copier.after_out([&] { scratch_ = at::empty_like(own); });
  }
  const at::Tensor other = scratch_.narrow(0, 0, own.numel());
  for (int i = 1; i < place_.size; ++i) {
    const int from = (place_.rank + place_.size - i) % place_.size;
    copier.copy_out(other, piece(step, from, place_.rank, own));
    copier.after_out([&] { reduce(own, other); });
  }
  if (arithmetic_.divisor != 1) {
    copier.after_out([&] { divide(own); });
  }
  return copier.mark_out();
}

// The reduced part.
std::unique_ptr<Mark> NodeSum::put(uint64_t step) {
  const at::Tensor own = part(step, place_.rank);
  return stage_->copier().copy_in(piece(step, place_.rank, place_.rank, own), own);
}

// The parts that the others have reduced.
std::unique_ptr<Mark> NodeSum::take(uint64_t step) {
  Copier& copier = stage_->copier();
  for (int i = 1; i < place_.size; ++i) {
    const int of = (place_.rank + place_.size - i) % place_.size;
    const at::Tensor theirs = part(step, of);
    copier.copy_out(theirs, piece(step, of, of, theirs));
  }
  return copier.mark_out();
}

// As combine() of the host: 16-bit floats are added as float32 and rounded, a NaN stays one in
// minimum and maximum, and the sum of bool is "or".
void NodeSum::reduce(at::Tensor& own, const at::Tensor& other) const {
  const UnseenGuard unseen;
  const bool of_bool = arithmetic_.element == Element::kBool;
  switch (arithmetic_.reduction) {
    case Reduction::kSum:
      of_bool ? own.bitwise_or_(other) : own.add_(other);
      return;
    case Reduction::kProduct:
      of_bool ? own.bitwise_and_(other) : own.mul_(other);
      return;
    case Reduction::kMin:
      at::minimum_out(own, own, other);
      return;
    case Reduction::kMax:
      at::maximum_out(own, own, other);
      return;
    case Reduction::kAnd:
      own.bitwise_and_(other);
      return;
    case Reduction::kOr:
      own.bitwise_or_(other);
      return;
    case Reduction::kXor:
      own.bitwise_xor_(other);
      return;
  }
}

// By a tensor, and in a type that holds it: by a number, GPUs multiply by its reciprocal.
void NodeSum::divide(at::Tensor& own) const {
  const UnseenGuard unseen;
  const bool of_floats = own.is_floating_point();
  const at::ScalarType type = !of_floats                         ? at::kLong
                              : own.scalar_type() == at::kDouble ? at::kDouble
                                                                 : at::kFloat;
  const at::Tensor divisor = at::full({}, arithmetic_.divisor, own.options().dtype(type));
  if (of_floats) {
    own.copy_(own.to(type).div_(divisor));
  } else {
    own.copy_(own.to(type).div_(divisor, "trunc"));
  }
}

bool NodeSum::is_gpu_late() const {
  return std::ranges::any_of(
      std::initializer_list<const Line*>{&given_, &added_, &put_, &taken_},
      [](const Line* line) { return !line->marks.empty() && !line->marks.front()->reached(); });
}

std::optional<std::string> NodeSum::late(Time now) {
  if (is_gpu_late()) {
    return late_gpu();
  }
  std::vector<int> waited_for;
  if (added_.asked < num_steps_) {
    waited_for = memory_.missing(Progress::kGiven, first_ + added_.asked);
    std::erase(waited_for, place_.rank);  // which waits for room
  }
  if (waited_for.empty() && taken_.asked < num_steps_) {
    waited_for = memory_.missing(Progress::kReduced, first_ + taken_.asked);
    std::erase(waited_for, place_.rank);
  }
  if (waited_for.empty() && !agreed_ && comparison_.waited_for() >= 0) {
    waited_for.push_back(comparison_.waited_for());
  }
  return ring_->roll_call.ask(number_, kind_, waited_for, timeout_s_, now);
}

// Copies that are under way end in memory that stays.
void NodeSum::cancel() noexcept {
  static_cast<void>(new std::shared_ptr<NodeStage>(node_));
  static_cast<void>(new at::Tensor(scratch_));
}

}  // namespace gear::process_group
