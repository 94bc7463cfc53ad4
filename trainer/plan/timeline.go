package plan

// resource processes one task at a time, in the order in which the tasks were added.
type resource int

const (
	cpuResource resource = iota
	networkResource
	numResources
)

// task is work for one resource. It begins when the resource is free and the tasks in after, on any
// resource, have ended.
type task struct {
	on      resource
	seconds float64
	after   []int // indices of earlier tasks
}

// timeline holds tasks in the order in which they were added.
type timeline struct{ tasks []task }

// add appends a task and returns its index.
func (t *timeline) add(on resource, seconds float64, after ...int) int {
	t.tasks = append(t.tasks, task{on, seconds, after})
	return len(t.tasks) - 1
}

// end returns when the last task ends, and how long each resource was busy.
func (t *timeline) end() (end float64, busy [numResources]float64) {
	var free [numResources]float64
	ends := make([]float64, len(t.tasks))
	for i, k := range t.tasks {
		begin := free[k.on]
		for _, a := range k.after {
			begin = max(begin, ends[a])
		}
		ends[i] = begin + k.seconds
		free[k.on] = ends[i]
		busy[k.on] += k.seconds
		end = max(end, ends[i])
	}
	return end, busy
}
