//go:build cuda

package driver

/*
#include <cuda.h>

// Results are returned by value: what Go passes the address of, it allocates.
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

// Entered is a goroutine's stay with a GPU, see [GPU.Enter].
type Entered struct{ entered C.ddpb_entered }

// Enter is Bind for the time of one call, for code that any goroutine may call. It
// allocates nothing, and costs one call of the driver where the goroutine has bound the
// GPU already.
func (g *GPU) Enter() (Entered, error) {
	runtime.LockOSThread()
	e := C.enter(contextHandle(g.context))
	if e.result != C.CUDA_SUCCESS {
		runtime.UnlockOSThread()
		return Entered{}, failed("cuCtxSetCurrent", e.result, nil)
	}
	return Entered{e}, nil
}

// Leave brings back what was bound before.
func (e Entered) Leave() {
	if e.entered.changed == 0 || C.cuCtxSetCurrent(e.entered.before) == C.CUDA_SUCCESS {
		runtime.UnlockOSThread()
	}
	// Else the thread ends with the goroutine: no other may find the GPU there.
}
