// Package gpu is an NVIDIA GPU for package communicator, by the driver of
// trainer/cuda/driver. All of it stands behind the build tag cuda, as that does.
//
// It does not choose a GPU, and holds nothing of its own: streams, events and memory
// are the driver's.
package gpu
