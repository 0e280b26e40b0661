#include "torch/operations.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace gear::process_group {
namespace {

const char* title_of(const ::c10d::ReduceOp& op) {
  switch (op.op_) {
    case ::c10d::ReduceOp::SUM:
      return "SUM";
    case ::c10d::ReduceOp::AVG:
      return "AVG";
    case ::c10d::ReduceOp::PRODUCT:
      return "PRODUCT";
    case ::c10d::ReduceOp::MIN:
      return "MIN";
    case ::c10d::ReduceOp::MAX:
      return "MAX";
    case ::c10d::ReduceOp::BAND:
      return "BAND";
    case ::c10d::ReduceOp::BOR:
      return "BOR";
    case ::c10d::ReduceOp::BXOR:
      return "BXOR";
    case ::c10d::ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "?";
  }
}

Signature signature_of(Kind kind, const at::Tensor& tensor) {
  Signature signature;
  signature.kind = kind;
  signature.dtype = short_name<sizeof signature.dtype>(c10::toString(tensor.scalar_type()));
  return signature;
}

Signature signature_of(Kind kind, const at::Tensor& tensor, const ::c10d::ReduceOp& op,
                       const Arithmetic& arithmetic) {
  Signature signature = signature_of(kind, tensor);
  signature.count = tensor.numel();
  signature.reduction = short_name<sizeof signature.reduction>(title_of(op));
  signature.compression = arithmetic.compression;
  return signature;
}

// Of what each rank has of a whole that all ranks know.
void share_out(Signature& signature, const std::vector<Block>& shares, uint64_t element_bytes) {
  Hash hash;
  uint64_t bytes = 0;
  for (const Block& share : shares) {
    hash.add(share.length);
    bytes += share.length;
  }
  signature.division = hash.value();
  signature.count = static_cast<int64_t>(bytes / element_bytes);
}

}  // namespace

void Operations::check_each_rank(size_t given, const char* what) const {
  TORCH_CHECK_VALUE(given == size(), "[mpi] ", what, ": ", given,
                    " tensors were given, and the group has ", size(), " ranks: give one a rank");
}

void Operations::check_dtype(const at::Tensor& to, const at::Tensor& from, const char* what) const {
  TORCH_CHECK_VALUE(to.scalar_type() == from.scalar_type(), "[mpi] ", what, ": rank ", place_.rank,
                    " gives an output of ", to.scalar_type(), " and an input of ",
                    from.scalar_type(), ": give tensors of the same dtype");
}

void Operations::check_own(Block given, Block taken, const char* what) const {
  TORCH_CHECK_VALUE(given.length == taken.length, "[mpi] ", what, ": rank ", place_.rank,
                    " gives itself ", given.length, " bytes and takes ", taken.length,
                    " of itself: give tensors of the same size");
}

bool Operations::is_root(int64_t root) const {
  TORCH_CHECK_VALUE(root >= 0 && root < place_.size, "[mpi] rank ", root,
                    " is not in the group: 0 to ", place_.size - 1, " is allowed");
  return root == place_.rank;
}

Arithmetic Operations::arithmetic_of(const at::Tensor& tensor, const Op& op) const {
  Arithmetic arithmetic = gear::process_group::arithmetic_of(tensor, op, place_.size);
  if (arithmetic.element == Element::kF32 && arithmetic.reduction == Reduction::kSum) {
    arithmetic.compression = compression_;
  }
  return arithmetic;
}

Operation Operations::broadcast(const at::Tensor& tensor, int64_t root) const {
  Operation made = begin();
  const Block bytes = is_root(root) ? input(tensor, made.tensors) : output(tensor, made.tensors);
  made.tensors.results = {tensor};
  Signature& signature = made.signatures.emplace_back(signature_of(Kind::kBroadcast, tensor));
  signature.count = tensor.numel();
  signature.root = static_cast<int32_t>(root);
  made.schedules.push_back(gear::process_group::broadcast(place_, bytes, static_cast<int>(root)));
  return made;
}

// All tensors of an operation go one way, which follows from what all ranks give alike.
bool Operations::is_for_node(const List& tensors, const Op& op) const {
  return on_node_ && std::ranges::all_of(tensors, [&](const at::Tensor& tensor) {
           return devices_.stages(tensor.device()) &&
                  tensor.nbytes() >= devices_.least_for_node() &&
                  arithmetic_of(tensor, op).compression == Compression::kNone;
         });
}

Operation Operations::all_reduce(const List& tensors, const Op& op) const {
  Operation made = begin();
  const bool for_node = is_for_node(tensors, op);
  for (const at::Tensor& tensor : tensors) {
    const Arithmetic arithmetic = arithmetic_of(tensor, op);
    made.signatures.push_back(signature_of(Kind::kAllReduce, tensor, op, arithmetic));
    made.signatures.back().way = for_node ? Way::kNode : Way::kMessages;
    if (for_node) {
      made.sums.push_back({changed_in_place(tensor, made.tensors), arithmetic});
      if (scales(op)) {
        scale(made.tensors.kept.back(), op);
      }
      continue;
    }
    const Block bytes = changed(tensor, made.tensors);
    if (scales(op)) {
      scale(made.tensors.kept.back(), op);
    }
    made.schedules.push_back(gear::process_group::all_reduce(place_, arithmetic, bytes.bytes,
                                                             bytes.length / arithmetic.bytes()));
  }
  made.tensors.results = tensors;
  return made;
}

Operation Operations::all_reduce_sparse(const at::Tensor& tensor, const Op& op) const {
  TORCH_CHECK_VALUE(tensor.layout() == at::kSparse && tensor.is_cpu(), "[mpi] a tensor of layout ",
                    tensor.layout(), " on ", tensor.device(),
                    " was given to all_reduce: dense (strided) ones are allowed, and sparse ones "
                    "(COO) on cpu; use .to_dense() or .cpu()");
  TORCH_CHECK_VALUE(
      op.op_ == Op::SUM, "[mpi] ", title_of(op),
      " of a sparse tensor was asked for: SUM is allowed; use .to_dense() for others");
  const c10::NoGradGuard no_grad;
  const at::Tensor own = tensor.coalesce();
  const at::Tensor indices = own._indices().contiguous();
  const at::Tensor values = own._values().contiguous();
  Operation made = begin();
  Signature& signature = made.signatures.emplace_back(signature_of(
      Kind::kAllReduce, tensor, op, gear::process_group::arithmetic_of(values, op, 1)));
  signature.is_sparse = true;
  Hash shape;
  shape.add(static_cast<uint64_t>(tensor.sparse_dim()));
  for (const int64_t length : tensor.sizes()) {
    shape.add(static_cast<uint64_t>(length));
  }
  signature.division = shape.value();
  auto gathered = std::make_shared<Gathered>();
  made.schedules.push_back(
      all_gather_of_any(place_,
                        {{static_cast<std::byte*>(indices.data_ptr()), indices.nbytes()},
                         {static_cast<std::byte*>(values.data_ptr()), values.nbytes()}},
                        gathered));
  // The parts that the sum takes the place of may be Python's: they are given up with the others.
  made.tensors.kept = {indices, values, tensor._indices(), tensor._values()};
  made.tensors.results = {tensor};
  auto add_up = [tensor, values, gathered] {
    const at::ScalarType type = values.scalar_type();
    const at::ScalarType added = c10::isReducedFloatingType(type) ? at::kFloat : type;
    at::Tensor sum;
    for (size_t rank = 0; rank < gathered->front().size(); ++rank) {
      const Block places = (*gathered)[0][rank];
      const Block numbers = (*gathered)[1][rank];
      std::vector<int64_t> shape_of_values = values.sizes().vec();
      shape_of_values.front() =
          static_cast<int64_t>(places.length / sizeof(int64_t)) / tensor.sparse_dim();
      at::Tensor part = at::_sparse_coo_tensor_unsafe(
          at::from_blob(places.bytes, {tensor.sparse_dim(), shape_of_values.front()}, at::kLong),
          at::from_blob(numbers.bytes, shape_of_values, type), tensor.sizes(),
          values.options().layout(at::kSparse), true);
      // float16 and bfloat16 as everywhere: added as float32, and rounded after each addition.
      sum = rank == 0 ? part.clone() : sum.to(added).add_(part.to(added)).to(type);
    }
    at::Tensor(tensor).copy_(sum.coalesce());
  };
  made.tensors.last = std::make_unique<std::function<void()>>(std::move(add_up));
  return made;
}

Operation Operations::reduce(const at::Tensor& tensor, const Op& op, int64_t root) const {
  Operation made = begin();
  const Arithmetic arithmetic = arithmetic_of(tensor, op);
  const bool keeps = is_root(root);
  Block bytes{};
  if (scales(op)) {
    at::Tensor scaled = keeps ? tensor : tensor.clone();
    bytes = changed(scaled, made.tensors);
    scale(made.tensors.kept.back(), op);
  } else {
    bytes = keeps ? changed(tensor, made.tensors) : input(tensor, made.tensors);
  }
  made.tensors.results = {tensor};
  made.signatures.push_back(signature_of(Kind::kReduce, tensor, op, arithmetic));
  made.signatures.back().root = static_cast<int32_t>(root);
  made.schedules.push_back(gear::process_group::reduce(
      place_, arithmetic, bytes.bytes, bytes.length / arithmetic.bytes(), static_cast<int>(root)));
  return made;
}

Operation Operations::barrier() const {
  Operation made = begin();
  made.signatures.emplace_back();
  made.schedules.emplace_back();  // ranks that compare what they call wait for all of them
  return made;
}

Operation Operations::monitored_barrier() const {
  Operation made = begin();
  made.signatures.push_back({.kind = Kind::kMonitoredBarrier});
  made.schedules.push_back(gear::process_group::monitored_barrier(place_));
  return made;
}

// ---- gathering and scattering ----

Operation Operations::all_gather(const Lists& outputs, const List& inputs) const {
  Operation made = begin();
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_each_rank(outputs[i].size(), "all_gather");
    const Block given = input(inputs[i], made.tensors);
    std::vector<Block> from;
    for (const at::Tensor& one : outputs[i]) {
      check_dtype(one, inputs[i], "all_gather");
      from.push_back(output(one, made.tensors));
      made.tensors.results.push_back(one);
    }
    check_own(given, from[own()], "all_gather");
    made.signatures.push_back(signature_of(Kind::kAllGather, inputs[i]));
    share_out(made.signatures.back(), from, inputs[i].element_size());
    made.schedules.push_back(exchange(place_, std::vector<Block>(size(), given), from));
  }
  return made;
}

Operation Operations::all_gather_flat(const List& outputs, const List& inputs) const {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(),
                    "[mpi] all_gather_into_tensor: ", inputs.size(), " inputs and ", outputs.size(),
                    " outputs");
  Operation made = begin();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& to = outputs[i];
    const at::Tensor& from = inputs[i];
    check_dtype(to, from, "all_gather_into_tensor");
    const Block given = input(from, made.tensors);
    const Block all = output(to, made.tensors);
    TORCH_CHECK_VALUE(all.length == given.length * size(),
                      "[mpi] all_gather_into_tensor: the output has ", to.numel(), " elements of ",
                      to.scalar_type(), ", and ", size(), " ranks give ", from.numel(), " of ",
                      from.scalar_type(), " each");
    std::vector<Block> blocks;
    blocks.reserve(size());
    for (uint64_t rank = 0; rank < size(); ++rank) {
      blocks.push_back({all.bytes + rank * given.length, given.length});
    }
    made.signatures.push_back(signature_of(Kind::kAllGather, from));
    share_out(made.signatures.back(), blocks, from.element_size());
    made.schedules.push_back(exchange(place_, std::vector<Block>(size(), given), blocks));
  }
  made.tensors.results = outputs;
  return made;
}

Operation Operations::gather(const Lists& outputs, const at::Tensor& given, int64_t root) const {
  Operation made = begin();
  const bool gathers = is_root(root);
  std::vector<std::optional<Block>> to(size());
  std::vector<std::optional<Block>> from(size());
  to[static_cast<size_t>(root)] = input(given, made.tensors);
  if (gathers) {
    TORCH_CHECK_VALUE(outputs.size() == 1, "[mpi] gather: ", outputs.size(),
                      " lists of outputs were given: the rank that gathers gives one");
    check_each_rank(outputs.front().size(), "gather");
    for (size_t i = 0; i < from.size(); ++i) {
      check_dtype(outputs.front()[i], given, "gather");
      from[i] = output(outputs.front()[i], made.tensors);
    }
    made.tensors.results = outputs.front();
    check_own(*to[own()], *from[own()], "gather");
  }
  made.signatures.push_back(signature_of(Kind::kGather, given));
  made.signatures.back().root = static_cast<int32_t>(root);
  made.schedules.push_back(exchange_of_any(place_, to, from));
  return made;
}

Operation Operations::scatter(const at::Tensor& taken, const Lists& inputs, int64_t root) const {
  Operation made = begin();
  const bool scatters = is_root(root);
  std::vector<std::optional<Block>> to(size());
  std::vector<std::optional<Block>> from(size());
  from[static_cast<size_t>(root)] = output(taken, made.tensors);
  made.tensors.results = {taken};
  if (scatters) {
    TORCH_CHECK_VALUE(inputs.size() == 1, "[mpi] scatter: ", inputs.size(),
                      " lists of inputs were given: the rank that scatters gives one");
    check_each_rank(inputs.front().size(), "scatter");
    for (size_t i = 0; i < to.size(); ++i) {
      check_dtype(taken, inputs.front()[i], "scatter");
      to[i] = input(inputs.front()[i], made.tensors);
    }
    check_own(*to[own()], *from[own()], "scatter");
  }
  made.signatures.push_back(signature_of(Kind::kScatter, taken));
  made.signatures.back().root = static_cast<int32_t>(root);
  made.schedules.push_back(exchange_of_any(place_, to, from));
  return made;
}

// ---- reducing and scattering ----

void Operations::add_scattering_sum(Operation& made, const at::Tensor& to, const List& inputs,
                                    const Op& op) const {
  Tensors& tensors = made.tensors;
  check_each_rank(inputs.size(), "reduce_scatter");
  const Arithmetic arithmetic = arithmetic_of(to, op);
  std::vector<Block> from;
  for (const at::Tensor& one : inputs) {
    TORCH_CHECK_VALUE(one.scalar_type() == to.scalar_type(), "[mpi] reduce_scatter: inputs of ",
                      one.scalar_type(), " and an output of ", to.scalar_type());
    if (scales(op)) {
      at::Tensor scaled = one.clone(at::MemoryFormat::Contiguous);
      scale(scaled, op);
      from.push_back(input(scaled, tensors));
    } else {
      from.push_back(input(one, tensors));
    }
  }
  const Block taken = output(to, tensors);
  check_own(from[own()], taken, "reduce_scatter");
  tensors.results.push_back(to);
  made.signatures.push_back(signature_of(Kind::kReduceScatter, to, op, arithmetic));
  share_out(made.signatures.back(), from, to.element_size());
  made.schedules.push_back(gear::process_group::reduce_scatter(place_, arithmetic, from, taken));
}

Operation Operations::reduce_scatter(const at::Tensor& to, const List& inputs, const Op& op) const {
  Operation made = begin();
  add_scattering_sum(made, to, inputs, op);
  return made;
}

Operation Operations::reduce_scatter_flat(const List& outputs, const List& inputs,
                                          const Op& op) const {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "[mpi] reduce_scatter_tensor: ", inputs.size(),
                    " inputs and ", outputs.size(), " outputs");
  Operation made = begin();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& to = outputs[i];
    const at::Tensor& from = inputs[i];
    TORCH_CHECK_VALUE(from.numel() == to.numel() * place_.size,
                      "[mpi] reduce_scatter_tensor: the input has ", from.numel(),
                      " elements, and ", size(), " ranks take ", to.numel(), " each");
    List parts;
    const at::Tensor flat = from.reshape({place_.size, to.numel()});
    for (int64_t rank = 0; rank < place_.size; ++rank) {
      parts.push_back(flat.select(0, rank));
    }
    add_scattering_sum(made, to, parts, op);
  }
  return made;
}

// ---- all to all ----

Operation Operations::all_to_all(const List& outputs, const List& inputs) const {
  check_each_rank(outputs.size(), "all_to_all");
  check_each_rank(inputs.size(), "all_to_all");
  Operation made = begin();
  made.tensors.results = outputs;
  std::vector<std::optional<Block>> to;
  std::vector<std::optional<Block>> from;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_dtype(outputs[i], inputs[i], "all_to_all");
    to.push_back(input(inputs[i], made.tensors));
    from.push_back(output(outputs[i], made.tensors));
  }
  check_own(*to[own()], *from[own()], "all_to_all");
  made.signatures.push_back(signature_of(Kind::kAllToAll, inputs.front()));
  made.schedules.push_back(exchange_of_any(place_, to, from));
  return made;
}

Operation Operations::all_to_all_rows(const at::Tensor& to, const at::Tensor& from,
                                      const std::vector<int64_t>& output_splits,
                                      const std::vector<int64_t>& input_splits) const {
  check_dtype(to, from, "all_to_all_single");
  Operation made = begin();
  const Block sent = input(from, made.tensors);
  const Block received = output(to, made.tensors);
  made.tensors.results = {to};
  const auto blocks_to = rows_of(from, sent, input_splits, "input");
  const auto blocks_from = rows_of(to, received, output_splits, "output");
  check_own(*blocks_to[own()], *blocks_from[own()], "all_to_all_single");
  made.signatures.push_back(signature_of(Kind::kAllToAll, from));
  made.schedules.push_back(exchange_of_any(place_, blocks_to, blocks_from));
  return made;
}

// The blocks of `splits` rows each; without splits, equal ones.
std::vector<std::optional<Block>> Operations::rows_of(const at::Tensor& tensor, Block bytes,
                                                      const std::vector<int64_t>& splits,
                                                      const char* what) const {
  std::vector<std::optional<Block>> blocks;
  const int64_t num_rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(num_rows % place_.size == 0, "[mpi] all_to_all_single: the ", what, " has ",
                      num_rows, " rows, which ", size(),
                      " ranks do not divide: give split sizes, or another number of rows");
    for (uint64_t rank = 0; rank < size(); ++rank) {
      blocks.push_back(Block{bytes.bytes + rank * (bytes.length / size()), bytes.length / size()});
    }
    return blocks;
  }
  TORCH_CHECK_VALUE(splits.size() == size(), "[mpi] all_to_all_single: ", splits.size(),
                    " split sizes of the ", what, " were given, and the group has ", size(),
                    " ranks");
  const uint64_t row_bytes = num_rows == 0 ? 0 : bytes.length / static_cast<uint64_t>(num_rows);
  uint64_t begin = 0;
  int64_t sum = 0;
  for (const int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "[mpi] all_to_all_single: a split of ", split, " rows");
    const uint64_t length = static_cast<uint64_t>(split) * row_bytes;
    blocks.push_back(Block{bytes.bytes + begin, length});
    begin += length;
    sum += split;
  }
  TORCH_CHECK_VALUE(sum == num_rows, "[mpi] all_to_all_single: the split sizes of the ", what,
                    " make ", sum, " rows, and it has ", num_rows);
  return blocks;
}

}  // namespace gear::process_group
