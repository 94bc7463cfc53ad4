package slurm

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// squeueJSON is what is read of squeue --json. The fields keep their names from
// 21.08 to 25.11 but not their shapes, so each reads all that were ever used and
// is empty where it meets another.
type squeueJSON struct {
	Jobs *[]struct {
		ID         jsonNumber `json:"job_id"`
		ArrayJobID jsonNumber `json:"array_job_id"` // 0, unset or null outside arrays
		ArrayTask  jsonNumber `json:"array_task_id"`
		ArrayTasks jsonText   `json:"array_task_string"` // of elements that are pending together
		Name       jsonText   `json:"name"`
		State      jsonTexts  `json:"job_state"` // a string before 23.11, then a list
		Reason     jsonText   `json:"state_reason"`
		Nodes      jsonText   `json:"nodes"`
		Start      jsonNumber `json:"start_time"`
		End        jsonNumber `json:"end_time"`
		Restarts   jsonNumber `json:"restart_cnt"`
		Exit       jsonExit   `json:"exit_code"`
	} `json:"jobs"`
}

// hasJSON says whether squeue --json of a version answers what it is asked:
// before 23.02 it ignored --jobs and gave the whole queue.
func hasJSON(version string) bool {
	major, minor, ok := parseVersion(version)
	return ok && (major > 23 || major == 23 && minor >= 2)
}

// parseSqueueJSON reads the answer of squeue --json. Times are told in the local
// zone and spans as squeue writes them as text, so that nobody has to know where
// an answer came from.
func parseSqueueJSON(out []byte, now time.Time) ([]jobRecord, error) {
	var answer squeueJSON
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, fmt.Errorf("squeue --json: %w", err)
	}
	if answer.Jobs == nil {
		return nil, fmt.Errorf("squeue --json: no jobs in it")
	}
	var records []jobRecord
	for i, j := range *answer.Jobs {
		if !j.ID.set || !isID(strconv.FormatInt(j.ID.n, 10)) {
			return nil, fmt.Errorf("squeue --json: job %d has no id", i)
		}
		r := jobRecord{raw: strconv.FormatInt(j.ID.n, 10), state: JobState{
			Name: string(j.Name), State: jsonState(j.State), Reason: told(string(j.Reason)), Nodes: told(string(j.Nodes)), Restarts: -1,
		}}
		if j.ArrayJobID.set && j.ArrayJobID.n > 0 {
			r.array, r.tasks = strconv.FormatInt(j.ArrayJobID.n, 10), string(j.ArrayTasks)
			if r.tasks == "" && j.ArrayTask.set {
				r.tasks = strconv.FormatInt(j.ArrayTask.n, 10)
			}
		}
		if j.Restarts.set && j.Restarts.n >= 0 && j.Restarts.n <= maxSmallNumber {
			r.state.Restarts = int(j.Restarts.n)
		}
		if r.state.Done() {
			r.state.ExitCode = string(j.Exit)
		}
		r.state.Start, r.state.End = localTime(j.Start), localTime(j.End)
		r.state.Elapsed = elapsed(r.state.State, j.Start, j.End, now)
		records = append(records, r)
	}
	return records, nil
}

// flagStates are states that stand beside another in the list and that squeue
// prints instead of it, in its order.
var flagStates = []State{
	StateCompleting, "STAGE_OUT", StateConfiguring, "RESIZING", StateRequeued, "REQUEUE_FED", StateRequeueHold, "SPECIAL_EXIT",
	"STOPPED", StateRevoked, "RESV_DEL_HOLD", "SIGNALING",
}

func jsonState(list []string) State {
	has := setOf(list)
	for _, flag := range flagStates {
		if has[string(flag)] {
			return flag
		}
	}
	if len(list) == 0 {
		return StateUnknown
	}
	return parseState(list[0])
}

func localTime(t jsonNumber) string {
	if !t.set || t.n <= 0 || t.n > maxUnix {
		return ""
	}
	return time.Unix(t.n, 0).Format("2006-01-02T15:04:05")
}

// maxUnix is the end of the year 9999; Slurm writes 2^32-2 for "never", and once
// a year 3047 that it meant.
const maxUnix = 253402300799

// elapsed is the time since a job's start, as "[days-][hours:]minutes:seconds".
func elapsed(state State, start, end jsonNumber, now time.Time) string {
	until := now.Unix()
	if state.Done() && end.set {
		until = end.n
	}
	if state == StatePending || !start.set || start.n <= 0 || start.n > until || until > maxUnix {
		return "0:00"
	}
	s := until - start.n
	days, hours, minutes, seconds := s/86400, s/3600%24, s/60%60, s%60
	switch {
	case days > 0:
		return fmt.Sprintf("%d-%02d:%02d:%02d", days, hours, minutes, seconds)
	case hours > 0:
		return fmt.Sprintf("%d:%02d:%02d", hours, minutes, seconds)
	}
	return fmt.Sprintf("%d:%02d", minutes, seconds)
}
