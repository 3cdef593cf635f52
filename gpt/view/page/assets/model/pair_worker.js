// @ts-check
// The thread that computes with a model with an encoder.

import { Computation } from "./computation.js";
import { PairGpt } from "./pair.js";
import { PairAnalysis } from "./pair_analysis.js";
import { provePairs } from "./pair_proof.js";

/** @typedef {import("./pair_analysis.js").PairAsk} PairAsk */

class PairComputation extends Computation {
  constructor() {
    super({ make: (config, tensors) => new PairGpt(config, tensors), prove: provePairs });
  }

  /** @override @param {import("./computation.js").Opened} opened @param {PairAsk} ask */
  analysisOf({ gpt }, { changes }) {
    return new PairAnalysis(gpt, changes);
  }
}

new PairComputation().serve();
