// Package gpu provides an NVIDIA GPU to package communicator, with the driver in
// trainer/cuda/driver. Like the driver, it requires the build tag cuda.
//
// The package does not choose a GPU and does not own resources: streams, events, and memory
// belong to the driver.
package gpu
