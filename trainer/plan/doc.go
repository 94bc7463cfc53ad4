// Package plan predicts the resources of a training run: parameters, floating-point operations,
// memory, and the time of a step on any number of ranks.
//
// The model itself runs a whole step on a [Counter], a device without memory that computes nothing,
// so no hand-written formula can disagree with it. The memory of ranks follows the formulas of the
// ZeRO paper (Rajbhandari et al., SC 2020). The time comes from a simulated step. Gradients become
// ready in the model's order and at the model's intervals. Package ddp divides them into buckets.
// The time of a message follows the Hockney model. Thakur et al. (IJHPCA 2005) describe the
// algorithms between nodes.
//
// A [Recorder] also lists the launches of a step on a GPU, and [Explain] computes their times from
// assumed rates. The GPU models, with the rates in their data sheets, are in gpu.go ([FindGPU]).
//
// All results are functions of the arguments. The package does not depend on jobs, sites, or data.
// It measures nothing; package measure does.
//
// The predicted time excludes reading data, evaluation, checkpoints, and differences in speed
// between ranks. Operations other than matmuls have no time of their own: a rate that was measured
// on the same model includes them.
package plan
