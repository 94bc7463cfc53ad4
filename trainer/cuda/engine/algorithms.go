package engine

// Algorithms are the algorithms of cuBLASLt for matrix multiplications that were the fastest on a
// type of GPU.
type Algorithms struct {
	GPU      string                    `json:"gpu"`      // name of the GPU
	CUBLASLt int                       `json:"cublaslt"` // version, for example 120805
	Products map[string]TimedAlgorithm `json:"products"` // by the text of the multiplication
}

// TimedAlgorithm is the fastest algorithm for a matrix multiplication.
type TimedAlgorithm struct {
	Algorithm     string  `json:"algorithm"`       // cublasLtMatmulAlgo_t in hexadecimal
	Seconds       float64 `json:"seconds"`         // per run
	DefaultTime   float64 `json:"default_seconds"` // the same for the algorithm that cuBLASLt's heuristic prefers
	NumAlgorithms int     `json:"algorithms"`      // number of algorithms that were timed
}

// Matches reports whether the algorithms are for the GPU and the version of cuBLASLt of b.
func (a Algorithms) Matches(b Algorithms) bool { return a.GPU == b.GPU && a.CUBLASLt == b.CUBLASLt }

// Saved returns the time that each algorithm saves compared with the heuristic's choice, in seconds,
// summed over all multiplications, and the sum of the times of the heuristic's choices.
func (a Algorithms) Saved() (saved, total float64) {
	for _, t := range a.Products {
		saved, total = saved+t.DefaultTime-t.Seconds, total+t.DefaultTime
	}
	return saved, total
}
