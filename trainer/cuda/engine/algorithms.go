package engine

// Algorithms are the algorithms of cuBLASLt for matrix multiplications that were the fastest on a
// type of GPU.
type Algorithms struct {
	Platform
	Products map[string]TimedAlgorithm `json:"products"` // by the text of the multiplication
}

// Platform is a type of GPU with a version of cuBLASLt. GPUs with the same name can differ in their
// number of multiprocessors, for example as parts of a GPU (MIG).
type Platform struct {
	GPU        string `json:"gpu"`             // name
	Capability string `json:"capability"`      // compute capability, for example "9.0"
	Processors int    `json:"multiprocessors"` // streaming multiprocessors
	CUBLASLt   int    `json:"cublaslt"`        // version, for example 120805
}

// TimedAlgorithm is the fastest algorithm for a matrix multiplication.
type TimedAlgorithm struct {
	Algorithm     string  `json:"algorithm"`       // cublasLtMatmulAlgo_t in hexadecimal
	Seconds       float64 `json:"seconds"`         // per run
	DefaultTime   float64 `json:"default_seconds"` // the same for the algorithm that cuBLASLt's heuristic prefers
	NumAlgorithms int     `json:"algorithms"`      // number of algorithms that were timed
}

// Matches reports whether the algorithms are for the same type of GPU and version of cuBLASLt as b.
func (a Algorithms) Matches(b Algorithms) bool { return a.Platform == b.Platform }

// Saved returns the time that each algorithm saves compared with the heuristic's choice, in seconds,
// summed over all multiplications, and the sum of the times of the heuristic's choices.
func (a Algorithms) Saved() (saved, total float64) {
	for _, t := range a.Products {
		saved, total = saved+t.DefaultTime-t.Seconds, total+t.DefaultTime
	}
	return saved, total
}
