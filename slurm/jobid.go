package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// cutID takes apart the id of a job, "18", or of an element of a job array,
// "18_3"; element is empty for a job.
func cutID(id string) (job, element string, ok bool) {
	job, element, isElement := strings.Cut(id, "_")
	if !isID(job) || isElement && !isID(element) {
		return "", "", false
	}
	return job, element, true
}

// checkIDs refuses what is no id, before it becomes part of a command line.
func checkIDs(ids []string) error {
	for _, id := range ids {
		if _, _, ok := cutID(id); !ok {
			return fmt.Errorf("job %q: an id is a number, or of an array's element two, such as 18_3", id)
		}
	}
	return nil
}

// maxArrayElements is above what Slurm allows an array to have (MaxArraySize is
// at most 4000001), and far above what sites do (1001 by default).
const maxArrayElements = 1 << 22

// appendElements appends the indices of an array that an expression stands for,
// such as "3", "2-5,9", "0-20:4" or "[2-5%4]", in which %4 is the throttle. It
// fails where one has been cut off ("1,3,...").
func appendElements(to []int, expression string) ([]int, error) {
	list := strings.TrimSuffix(strings.TrimPrefix(expression, "["), "]")
	list, _, _ = strings.Cut(list, "%")
	room := maxArrayElements
	for part := range strings.SplitSeq(list, ",") {
		span, stepText, stepped := strings.Cut(part, ":")
		lowText, highText, ranged := strings.Cut(span, "-")
		low, err := smallNumber(lowText)
		high, step := low, 1
		if err == nil && ranged {
			high, err = smallNumber(highText)
		}
		if err == nil && stepped {
			step, err = smallNumber(stepText)
		}
		switch {
		case err != nil:
		case high < low || step == 0:
			err = fmt.Errorf("no element")
		case (high-low)/step >= room:
			err = fmt.Errorf("more than %d elements", maxArrayElements)
		}
		if err != nil {
			return nil, fmt.Errorf("array elements %s: %w", excerpt(expression, 0), err)
		}
		for i := low; i <= high; i += step {
			to = append(to, i)
			room--
		}
	}
	return to, nil
}

// elementID is the id of an array's element.
func elementID(array string, element int) string {
	return array + "_" + strconv.Itoa(element)
}
