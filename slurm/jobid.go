package slurm

import (
	"cmp"
	"fmt"
	"strings"
)

// isID reports whether s is the number of a job or step: 1 to 10 digits, as it has 32 bits.
func isID(s string) bool {
	return s != "" && len(s) <= 10 && strings.Trim(s, "0123456789") == ""
}

// splitID splits the ID of a job, "18", or of an array task, "18_3". For a job, task is
// empty.
func splitID(id string) (job, task string, ok bool) {
	job, task, isTask := strings.Cut(id, "_")
	if !isID(job) || isTask && !isID(task) {
		return "", "", false
	}
	return job, task, true
}

// checkIDs returns an error if one of ids is not a job ID. IDs become parts of command
// lines.
func checkIDs(ids []string) error {
	for _, id := range ids {
		if _, _, ok := splitID(id); !ok {
			return fmt.Errorf("job %q: not a job ID, such as 18, or 18_3 for an array task", id)
		}
	}
	return nil
}

// CompareIDs orders job IDs by number: "9" before "10", and "18_3" before "18_10".
func CompareIDs(a, b string) int {
	jobA, taskA, _ := strings.Cut(a, "_")
	jobB, taskB, _ := strings.Cut(b, "_")
	return cmp.Or(cmp.Compare(len(jobA), len(jobB)), strings.Compare(jobA, jobB),
		cmp.Compare(len(taskA), len(taskB)), strings.Compare(taskA, taskB))
}

// maxArrayTasks is above Slurm's limit for MaxArraySize, 4,000,001.
const maxArrayTasks = 1 << 22

// A taskSpan contains the indices low, low+step, and so on, up to high.
type taskSpan struct{ low, high, step int }

func (s taskSpan) count() int { return (s.high-s.low)/s.step + 1 }

func (s taskSpan) contains(index int) bool {
	return index >= s.low && index <= s.high && (index-s.low)%s.step == 0
}

// parseArrayTasks returns the task indices of an expression, such as "3", "2-5,9",
// "0-20:4", or "[2-5%4]", where %4 is the throttle. It returns an error if the expression
// is cut off ("1,3,...").
func parseArrayTasks(expression string) ([]taskSpan, error) {
	list := strings.TrimSuffix(strings.TrimPrefix(expression, "["), "]")
	list, _, _ = strings.Cut(list, "%")
	var spans []taskSpan
	tasks := 0
	for part := range strings.SplitSeq(list, ",") {
		text, stepText, hasStep := strings.Cut(part, ":")
		lowText, highText, isRange := strings.Cut(text, "-")
		low, err := parseCount(lowText)
		span := taskSpan{low, low, 1}
		if err == nil && isRange {
			span.high, err = parseCount(highText)
		}
		if err == nil && hasStep {
			span.step, err = parseCount(stepText)
		}
		switch {
		case err != nil:
		case span.high < span.low || span.step == 0:
			err = fmt.Errorf("%q is an empty range", part)
		case span.count() > maxArrayTasks-tasks:
			err = fmt.Errorf("more than %d tasks", maxArrayTasks)
		}
		if err != nil {
			return nil, fmt.Errorf("array tasks %s: %w", excerpt(expression, 0), err)
		}
		tasks += span.count()
		spans = append(spans, span)
	}
	return spans, nil
}
