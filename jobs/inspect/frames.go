package inspect

import (
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// Sources of what a rank is doing.
const (
	sourcePySpy        = "py-spy"
	sourceFaulthandler = "faulthandler"
	sourceKernel       = "kernel"
)

// mainThread returns the frames of the main thread in a stack, the innermost first, such as
// "all_reduce (torch/distributed/distributed_c10d.py:1322)".
func mainThread(stack, source string) []string {
	if source == sourceFaulthandler {
		return mainOfFaulthandler(stack)
	}
	return mainOfPySpy(stack)
}

// mainOfPySpy returns the frames of the thread MainThread, or of the first thread.
func mainOfPySpy(dump string) []string {
	var first, frames []string
	thread, isMain := 0, false
	for line := range strings.Lines(dump) {
		text := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "Thread "):
			thread, isMain = thread+1, strings.Contains(line, "\"MainThread\"")
		case text == "" || thread == 0:
		case isMain:
			frames = append(frames, text)
		case thread == 1:
			first = append(first, text)
		}
	}
	if len(frames) > 0 {
		return frames
	}
	return first
}

// faulthandlerFrame matches a frame in the output of faulthandler.
var faulthandlerFrame = lazyregexp.New(`^  File "(.*)", line ([0-9]+|\?\?\?) in (.*)$`)

// mainOfFaulthandler returns the frames of the last thread: faulthandler prints the newest thread
// first.
func mainOfFaulthandler(dump string) (frames []string) {
	for line := range strings.Lines(dump) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "Thread 0x") || strings.HasPrefix(line, "Current thread 0x") {
			frames = nil
		} else if line == "..." {
			return nil // faulthandler prints at most 100 threads, so the main thread is missing
		} else if m := faulthandlerFrame().FindStringSubmatch(line); m != nil {
			frames = append(frames, m[3]+" ("+shortPath(m[1])+":"+m[2]+")")
		}
	}
	return frames
}

// libraryPath matches the directory of a Python module at the start of its path.
var libraryPath = lazyregexp.New(`^.*/(?:(?:site|dist)-packages|python3(?:\.[0-9]+)?t?)/`)

// shortPath returns the path of a module below its library, or the name of another file.
func shortPath(path string) string {
	if prefix := libraryPath().FindString(path); prefix != "" {
		return path[len(prefix):]
	}
	return path[strings.LastIndexByte(path, '/')+1:]
}

// isInCollective reports whether frames are in a function of torch.distributed, which usually waits
// for other ranks.
func isInCollective(frames []string) bool {
	return slices.ContainsFunc(frames, func(f string) bool {
		return strings.Contains(f, "(torch/distributed/") && !strings.Contains(f, "(torch/distributed/elastic/") && !strings.Contains(f, "(torch/distributed/run.py")
	})
}
