// Package plan says what a training will take before it runs: parameters, floating
// point operations, memory and the time of a step on any number of ranks.
//
// A model is counted, not described: it does a whole step on a [Counter], a device
// without memory that computes nothing, so that there is no formula to differ from
// what the model does. Memory of ranks is by the formulas of ZeRO (Rajbhandari et
// al., SC 2020). Time is that of a simulated step: gradients become ready in the
// order and at the distances in which the model makes them, buckets are those of
// package ddp, and each collective takes latency and bandwidth by the model of
// Hockney (Thakur et al., IJHPCA 2005, for the algorithms).
//
// Everything here is a function of its arguments. It does not know of jobs, sites
// or data, and measures nothing: package measure does.
//
// The time leaves out reading data, evaluation, checkpoints, and ranks that differ
// in speed. Operations that are not products of matrices have no time of their own:
// a rate that was measured on the same model holds them.
package plan
