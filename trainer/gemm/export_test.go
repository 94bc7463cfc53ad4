package gemm

// NewWorkspaceFor returns a workspace that uses the kernels with the given name.
func NewWorkspaceFor(name string, workers int) *Workspace {
	for _, k := range available() {
		if k.name == name {
			return newWorkspace(workers, k)
		}
	}
	panic("gemm: no kernels called " + name)
}

// Block sizes, and the sizes above which operands are packed.
const (
	Depth    = depth
	Height   = height
	Width    = width
	PackRows = packRows
	PackCols = packCols
	L1Terms  = l1Terms
)

// UseAllWorkers makes ws divide even the smallest work.
func UseAllWorkers(ws *Workspace) { ws.minTerms = 1 }
