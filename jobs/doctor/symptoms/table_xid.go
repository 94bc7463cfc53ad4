package symptoms

import (
	"slices"
	"strconv"
	"strings"
)

// avoidNode explains how to keep jobs off a node. Users cannot drain a node, and the job file
// has no key to exclude one.
const avoidNode = "Only an administrator can drain the node; to keep your next job off it, run `scontrol update JobId=ID ExcNodeList=NODE` while that job waits in the queue"

// Xids by the immediate action that NVIDIA's catalog ("Xid Errors") recommends to users. For
// some, the program must be fixed or restarted. For others, the GPU needs a reset or a repair.
// The rest need no action: 43 and 45 follow when a program fails or ends, 63 reports that a
// memory row was remapped, and 92 and 121 count corrected errors.
var (
	xidsOfPrograms  = []int{13, 31, 126}
	xidsContained   = []int{94}
	xidsOfHardware  = []int{46, 48, 54, 61, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158, 168}
	xidsToIgnore    = []int{43, 45, 63, 92, 121}
	xidsOfAllGroups = slices.Concat(xidsOfPrograms, xidsContained, xidsOfHardware, xidsToIgnore)
)

const lastXid = 255 // all Xids of the catalog are smaller

// xidPattern returns a pattern that matches a report of one of the given Xids.
func xidPattern(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	return `NVRM: Xid \([^)]*\): (` + strings.Join(words, "|") + `)\b`
}

// otherXids returns the Xids that are in no group.
func otherXids() []int {
	var others []int
	for n := 1; n <= lastXid; n++ {
		if !slices.Contains(xidsOfAllGroups, n) {
			others = append(others, n)
		}
	}
	return others
}

// xidTexts lists the errors that the NVIDIA driver writes to the kernel log.
var xidTexts = []Symptom{
	newSymptom(likely, "gpu program error", "the NVIDIA driver", xidPattern(xidsOfPrograms),
		"NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f32_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_READ",
		"a program made an invalid access or ran an invalid instruction on the GPU (Xid 13, 31, or 126); the GPU itself works",
		"run once with CUDA_LAUNCH_BLOCKING=1 to find the call; check indices and labels against their ranges, and your own kernels with compute-sanitizer"),
	newSymptom(likely, "contained gpu memory error", "the NVIDIA driver", xidPattern(xidsContained),
		"NVRM: Xid (PCI:0000:3b:00): 94, pid=1234, name=python3, Ch 00000008, Contained: SM (0x1). RST: No, D-RST: No",
		"an error in the GPU's memory stopped the program that used this memory, and no other program (Xid 94); the GPU still works",
		"submit again to resume from the last checkpoint"),
	newSymptom(cause, "gpu has failed", "the NVIDIA driver", xidPattern(xidsOfHardware)+`|GPU has fallen off the bus|Unable to determine the device handle|uncorrectable ECC|CUDA_ERROR_ECC_UNCORRECTABLE`,
		"NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
		"the GPU, its memory, or its link has failed and needs a reset or a repair",
		"submit again to resume, and tell the administrator the Xid. "+avoidNode),
	newSymptom(likely, "error of the gpu driver", "the NVIDIA driver", xidPattern(otherXids()),
		"NVRM: Xid (PCI:0000:3b:00): 32, pid=1234, Channel ID 00000010 intr 00040000",
		"the driver reports an error that may come from the program, the driver, or the GPU",
		"look up the number in NVIDIA's catalog of Xid errors; if it occurs again on one node only, tell the administrator"),
}
