package jobs

import (
	"slices"
	"strings"
)

// aliases maps keys of other programs to keys of the job file.
var aliases = map[string]string{
	"learning_rate": "lr", "batch_size": "batch", "num_epochs": "epochs", "ntasks_per_node": "tasks_per_node",
	"nproc_per_node": "tasks_per_node", "walltime": "time", "memory": "mem", "queue": "partition", "project": "account",
}

// sbatchOptions are options of sbatch without a key in [slurm]. A key with the same name in
// another table has a different meaning.
var sbatchOptions = []string{
	"contiguous", "core_spec", "deadline", "distribution", "get_user_env", "gres_flags", "mem_bind", "mincpus", "network", "nodefile",
	"ntasks_per_core", "ntasks_per_socket", "oversubscribe", "power", "priority", "profile", "propagate", "reboot", "sockets_per_node", "spread_job", "thread_spec",
	"threads_per_core", "time_min", "tmp", "use_min_nodes", "wait_all_nodes",
}

// sbatchOption returns the option of sbatch that an unknown key of [slurm] names.
func sbatchOption(table []string, key string) (option string, ok bool) {
	key = strings.ReplaceAll(key, "-", "_")
	if len(table) == 0 || table[len(table)-1] != "slurm" || !slices.Contains(sbatchOptions, key) {
		return "", false
	}
	return strings.ReplaceAll(key, "_", "-"), true
}

// Nearest returns the name that word probably stands for, or an empty string. In this order,
// it tries the corresponding name of another program, the only name with the smallest edit
// distance, and the only name that is a prefix of word or starts with it. The edit distance is at
// most three, and at most a third of the length of word.
func Nearest(word string, names []string) string {
	const longest = 64 // bytes; all names are much shorter
	if len(word) > longest {
		return ""
	}
	word = strings.ReplaceAll(strings.ToLower(word), "-", "_")
	if name := aliases[word]; slices.Contains(names, name) {
		return name
	}
	best, least, tied := "", 1+min(3, max(1, len(word)/3)), false
	for _, name := range names {
		d := distance(word, strings.ToLower(name))
		switch {
		case d >= len(name):
		case d < least:
			best, least, tied = name, d, false
		case d == least && best != "" && name != best:
			tied = true
		}
	}
	if tied {
		return ""
	}
	if best != "" {
		return best
	}
	for _, name := range names {
		short, long := word, name
		if len(short) > len(long) {
			short, long = long, short
		}
		if len(short) >= 3 && strings.HasPrefix(long, short) {
			if best != "" {
				return "" // ambiguous
			}
			best = name
		}
	}
	return best
}

// distance returns the edit distance of a and b: insertions, deletions, replacements, and
// swaps of neighbors (optimal string alignment).
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	rows := make([][]int, len(s)+1)
	for i := range rows {
		rows[i] = make([]int, len(t)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(s); i++ {
		for j := 1; j <= len(t); j++ {
			replace := rows[i-1][j-1]
			if s[i-1] != t[j-1] {
				replace++
			}
			rows[i][j] = min(replace, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(s)][len(t)]
}
