// @ts-check
// The thread that computes with a model with an encoder.

import { Computation } from "./computation.js";
import { PairGpt } from "./pair.js";
import { PairAnalysis } from "./pair_analysis.js";
import { provePairs } from "./pair_proof.js";

new Computation({
  make: (config, tensors) => new PairGpt(config, tensors),
  prove: provePairs,
  analyse: ({ gpt }, changes) => new PairAnalysis(gpt, changes),
}).serve();
