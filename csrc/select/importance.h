#pragma once

#include <span>

namespace gear::select {

/// Importance weights (N P(i))^-beta / max over a batch (Schaul et al., Prioritized Experience
/// Replay, arXiv:1511.05952). The largest belongs to the smallest probability, so that N cancels:
///
///   weights[i] = (probabilities[i] / least)^-beta
///
/// `least`: the smallest probability of the batch, over all ranks that share it; or of all that may
/// be drawn: then the weights do not depend on what else is in the batch. A beta of 0 gives 1.
void set_importance(double beta, float least, std::span<const float> probabilities,
                    std::span<float> weights);

}  // namespace gear::select
