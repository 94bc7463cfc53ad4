package jobs

import (
	"slices"
	"strings"
)

// otherwise are what other programs call the keys of a job file.
var otherwise = map[string]string{
	"learning_rate": "lr", "batch_size": "batch", "num_epochs": "epochs", "ntasks_per_node": "tasks_per_node",
	"nproc_per_node": "tasks_per_node", "walltime": "time", "memory": "mem", "queue": "partition", "project": "account",
}

// Nearest returns the one of names that was probably meant by word, or "" if none
// is near.
func Nearest(word string, names []string) string { return nearest(word, names) }

// nearest returns the name that was probably meant by word, or "" if none is
// near: equal but for case and dashes, a few typing errors away, or the start of
// it (or it of the word).
func nearest(word string, names []string) string {
	const longest = 64 // beyond it, no name of the spec is near
	if len(word) > longest {
		return ""
	}
	word = strings.ReplaceAll(strings.ToLower(word), "-", "_")
	if name := otherwise[word]; slices.Contains(names, name) {
		return name
	}
	best, least := "", 1+min(3, max(1, len(word)/3))
	for _, name := range names {
		if d := distance(word, strings.ToLower(name)); d < least && d < len(name) {
			best, least = name, d
		}
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

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b (optimal string alignment).
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
