package plan

// resource is what does one task at a time, in the order in which they were given.
type resource int

const (
	processor resource = iota
	network
	numResources
)

// task is work of one resource that begins when its turn has come and the tasks
// before it, on either resource, are done.
type task struct {
	on      resource
	seconds float64
	after   []int // of earlier tasks
}

// timeline is tasks in the order in which they were given.
type timeline struct{ tasks []task }

// add appends a task and returns its number.
func (t *timeline) add(on resource, seconds float64, after ...int) int {
	t.tasks = append(t.tasks, task{on, seconds, after})
	return len(t.tasks) - 1
}

// end is when the last task is done, and how long each resource was at work.
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
