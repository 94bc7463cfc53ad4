package slurm

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// BindTogether returns the value of --cpu-bind for one task that does the work of several:
// the union of what bind, a value for that many tasks, gives each of them. A binding by
// task number that has no such union becomes "none". Bindings to cores, sockets, threads,
// and NUMA domains follow from the CPUs of a task and stay as they are.
func BindTogether(bind string, tasks int) string {
	words := strings.SplitN(bind, ",", 2)
	verbosity := ""
	if len(words) == 2 && slices.Contains([]string{"q", "quiet", "v", "verbose"}, words[0]) {
		verbosity, bind = words[0]+",", words[1]
	}
	kind, list, _ := strings.Cut(bind, ":")
	of, isList := map[string]string{"map_cpu": "mask_cpu", "mask_cpu": "mask_cpu", "map_ldom": "mask_ldom", "mask_ldom": "mask_ldom"}[kind]
	switch {
	case isList:
		mask, ok := union(list, tasks, strings.HasPrefix(kind, "map_"))
		if !ok {
			return verbosity + "none"
		}
		return fmt.Sprintf("%s%s:0x%x", verbosity, of, mask)
	case kind == "rank" || kind == "rank_ldom":
		return verbosity + "none"
	}
	return verbosity + bind
}

// union returns the union of the first masks of a list, as many as there are tasks, or of
// the masks with one bit for each number of it. srun starts over at the end of the list.
func union(list string, tasks int, numbers bool) (*big.Int, bool) {
	mask := new(big.Int)
	taken := 0
	for _, word := range strings.Split(list, ",") {
		word, repeat, repeated := strings.Cut(word, "*")
		n := 1
		if repeated {
			var err error
			if n, err = strconv.Atoi(repeat); err != nil || n < 1 {
				return nil, false
			}
		}
		if taken >= tasks {
			break
		}
		taken += n
		if numbers {
			bit, err := strconv.ParseUint(word, 0, 16)
			if err != nil {
				return nil, false
			}
			mask.SetBit(mask, int(bit), 1)
			continue
		}
		one, ok := new(big.Int).SetString(strings.TrimPrefix(strings.ToLower(word), "0x"), 16)
		if !ok || one.Sign() <= 0 {
			return nil, false
		}
		mask.Or(mask, one)
	}
	return mask, true
}

// GPUBindTogether is [BindTogether] for --gpu-bind: one task that does the work of several
// needs all of their GPUs.
func GPUBindTogether(bind string) string {
	verbosity := ""
	for _, v := range []string{"quiet,", "verbose,"} {
		if rest, ok := strings.CutPrefix(bind, v); ok {
			verbosity, bind = v, rest
		}
	}
	kind, _, _ := strings.Cut(bind, ":")
	if slices.Contains([]string{"map_gpu", "mask_gpu", "single", "per_task"}, kind) {
		return verbosity + "none"
	}
	return verbosity + bind
}
