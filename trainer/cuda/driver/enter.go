//go:build cuda

package driver

/*
#include <cuda.h>

// Results are returned by value, because Go allocates variables whose address is passed to C.
typedef struct { CUresult result; CUcontext before; int changed; } ddpb_entered;

static ddpb_entered enter(CUcontext want) {
	ddpb_entered e = {CUDA_SUCCESS, NULL, 0};
	e.result = cuCtxGetCurrent(&e.before);
	if (e.result == CUDA_SUCCESS && e.before != want) {
		e.result = cuCtxSetCurrent(want);
		e.changed = 1;
	}
	return e;
}
*/
import "C"

import "runtime"

// Entered is the state to restore after a call, see [GPU.Enter].
type Entered struct{ entered C.ddpb_entered }

// Enter binds the GPU for one call, for code that any goroutine may call. It allocates nothing. If
// the goroutine has already bound the GPU, it costs one driver call.
func (g *GPU) Enter() (Entered, error) {
	runtime.LockOSThread()
	e := C.enter(contextHandle(g.context))
	if e.result != C.CUDA_SUCCESS {
		runtime.UnlockOSThread()
		return Entered{}, failed("cuCtxSetCurrent", e.result, nil)
	}
	return Entered{e}, nil
}

// Leave restores the previous binding.
func (e Entered) Leave() {
	if e.entered.changed == 0 || C.cuCtxSetCurrent(e.entered.before) == C.CUDA_SUCCESS {
		runtime.UnlockOSThread()
	}
	// Otherwise the thread exits with the goroutine, so that no other goroutine uses it with this
	// GPU.
}
