package libnccl

import (
	"fmt"
	"strings"
)

// A Result is an ncclResult_t, the result of a call.
type Result int32

// The results. Timeout exists since 2.30.
const (
	Success Result = iota
	UnhandledCUDAError
	SystemError
	InternalError
	InvalidArgument
	InvalidUsage
	RemoteError
	InProgress
	Timeout
)

var resultNames = [...]string{"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
	"ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError", "ncclInProgress", "ncclTimeout"}

// String returns NCCL's name of the result.
func (r Result) String() string {
	if r < 0 || int(r) >= len(resultNames) {
		return fmt.Sprintf("ncclResult %d", int32(r))
	}
	return resultNames[r]
}

// An Error is a failed call, or an asynchronous error of a communicator.
type Error struct {
	Call   string // such as "ncclCommInitRankConfig"
	Result Result
	Last   string // text of ncclGetLastError, often the most useful detail
}

// Error returns the call, the result, and NCCL's text in one line.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %v", e.Call, e.Result)
	if last := strings.Join(strings.Fields(e.Last), " "); last != "" {
		text += ": " + last
	}
	return text
}

// meanings holds the fix for each result, based on NCCL's user guide.
var meanings = map[Result]string{
	UnhandledCUDAError: "a CUDA call inside of NCCL failed: look for Xid lines in dmesg, compare nvidia-smi's driver with the CUDA that libnccl was built for, and run with NCCL_DEBUG=INFO, whose last line names the call",
	SystemError:        "a system call failed, mostly the network's, or /dev/shm is full: run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV, which names the call and the interface, and compare NCCL_SOCKET_IFNAME and NCCL_IB_HCA with what \"ddpbatch netif\" shows",
	InternalError:      "NCCL is at fault, or memory is corrupt: run with NCCL_DEBUG=INFO, keep the output, and try another version of libnccl",
	InvalidArgument:    "an argument makes no sense to NCCL: run with NCCL_DEBUG=WARN, which names it; where the ranks' programs are the same this is a mistake in ddpbatch",
	InvalidUsage:       "NCCL was used in a way that it forbids: run with NCCL_DEBUG=WARN; two ranks on one GPU (look at CUDA_VISIBLE_DEVICES) and different versions of NCCL on the nodes end like this, too",
	RemoteError:        "another rank or the network to it is gone: the first rank that failed has the cause; without one run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=NET",
	Timeout:            "NCCL has waited for another rank for too long: the first rank that failed has the cause; without one run with NCCL_DEBUG=INFO",
}

// Hint returns the fix.
func (e *Error) Hint() string { return meanings[e.Result] }
