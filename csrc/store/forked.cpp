#include "store/forked.h"

#include "base/errors.h"

namespace gear::store {

void refuse_change(const base::Origin& origin, std::string_view call) {
  throw base::InvalidArgument(base::cat(
      "[buffer] ", call, ": this buffer ", origin.text(),
      ", where a change would be lost or would spoil the stored steps of the other: let an actor ",
      "in a child process make a buffer of its own, or send its steps to the process that made ",
      "this one (by a multiprocessing.Queue, say), whose writer appends them; processes that ",
      "share one buffer are the ranks of a gear.Group"));
}

void refuse_rows(const base::Origin& origin, std::string_view call, memory::Tier tier) {
  throw base::InvalidArgument(base::cat(
      "[buffer] ", call, ": this buffer ", origin.text(), "; its rows lie on tier '",
      memory::kTiers.name(tier),
      "', where the other goes on writing them, so that they would not be those of their ids: ",
      "read them in the process that made the buffer and send the batches, or give the buffer ",
      "tier='host', of which a forked process has a copy as it was when it was forked"));
}

void refuse_draws(const base::Origin& origin, std::string_view call, std::string_view limit) {
  throw base::InvalidArgument(base::cat(
      "[buffer] ", call, ": this buffer ", origin.text(), "; it has ", limit,
      ", and the other would not count what is drawn here: draw in the process that made the ",
      "buffer and send the batches"));
}

void refuse_priorities(const base::Origin& origin) {
  throw base::InvalidArgument(base::cat(
      "[buffer] this buffer ", origin.text(), "; its priorities lie on a GPU, which a forked ",
      "process cannot use: ask for them in the process that made the buffer"));
}

}  // namespace gear::store
