package gemm

// NewWorkspaceFor returns a workspace that uses the kernels of a name.
func NewWorkspaceFor(name string, workers int) *Workspace {
	for _, k := range available() {
		if k.name == name {
			return newWorkspace(workers, k)
		}
	}
	panic("gemm: no kernels called " + name)
}

// Fused is the multiply-add of the portable code.
func Fused(a, b, c float32) float32 { return fused(a, b, c) }

// Depth is the number of terms that a kernel takes at once.
const Depth = depth

// UseAllWorkers makes ws divide even the smallest work.
func UseAllWorkers(ws *Workspace) { ws.minTerms = 1 }

// PackRows is the number of rows of A from which on B is always copied.
const PackRows = packRows
