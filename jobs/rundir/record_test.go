package rundir

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestReadRecordRefuses checks that corrupt, newer, and hostile records are rejected with a hint.
func TestReadRecordRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want, hint string }{
		"empty":              {"", "it is damaged", "ddpbatch repair"},
		"cut off":            {`{"format":1,"run":"a"`, "it is damaged", "ddpbatch repair"},
		"hollow":             {`{"format":1}`, "run, name or base is missing", "ddpbatch repair"},
		"run outside":        {`{"format":1,"run":"../../x","name":"b","base":"/c"}`, `"../../x" is not the ID of a run`, "ddpbatch repair"},
		"long run":           {`{"format":1,"run":"` + strings.Repeat("a", 65) + `","name":"b","base":"/c"}`, "is not the ID of a run", "ddpbatch repair"},
		"newer":              {`{"format":2,"run":"a","name":"b","base":"/c"}`, "its format is 2, and this version knows up to 1", "newer"},
		"no id":              {`{"format":1,"run":"a","name":"b","base":"/c","submissions":[{"job_id":"../../x"}]}`, `"../../x" is not a job id`, "ddpbatch repair"},
		"option":             {`{"format":1,"run":"a","name":"b","base":"/c","submissions":[{"job_id":"--me"}]}`, `"--me" is not a job id`, "ddpbatch repair"},
		"submission outside": {`{"format":1,"run":"a","name":"b","base":"/c","submissions":[{"id":"../../x","job_id":"7"}]}`, `"../../x" is not a submission ID`, "ddpbatch repair"},
		"pending outside":    {`{"format":1,"run":"a","name":"b","base":"/c","pending":{"id":"../../x"}}`, `"../../x" is not a submission ID`, "ddpbatch repair"},
		"pending without ID": {`{"format":1,"run":"a","name":"b","base":"/c","pending":{}}`, "is not a submission ID", "ddpbatch repair"},
		"job 0":              {`{"format":1,"run":"a","name":"b","base":"/c","submissions":[{"job_id":"0"}]}`, `"0" is not a job id`, "ddpbatch repair"},
		"overflow":           {`{"format":1,"run":"a","name":"b","base":"/c","submissions":[{"job_id":"2147483648"}]}`, "is not a job id", "ddpbatch repair"},
		"sweep":              {`{"format":1,"run":"a","name":"b","base":"/c","sweep":{"elements":[{}` + strings.Repeat(",{}", maxElements) + `]}}`, "more than 20000 trials", "ddpbatch repair"},
		"huge":               {strings.Repeat(" ", maxRecord+1), "larger than 8 MiB", "ddpbatch repair"},
	} {
		t.Run(name, func(t *testing.T) {
			d := mustCreate(t)
			if err := os.WriteFile(filepath.Join(d.Path, "record.json"), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := d.ReadRecord()
			wants(t, err, c.want, c.hint)
			if run := d.SalvageRecord().Run; run != "" && run != "a" {
				t.Errorf("salvaged the run ID %q", run)
			}
			// Prepare does not overwrite the record either.
			_, err = d.Prepare("b", "/c", "v1", nil)
			wants(t, err, c.want, "")
		})
	}
	if _, err := mustCreate(t).ReadRecord(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no record: %v", err)
	}
}

// FuzzParseRecord checks that every valid record can be written and read again.
func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"format":1,"run":"a","name":"b","base":"/c","submissions":[{"job_id":"12","host":"n1"}]}`))
	f.Add([]byte(`{"format":1,"run":"a","name":"b","base":"/c","created":"2026-01-01T00:00:00Z","more":[1]}`))
	f.Add([]byte(`{"format":1e0}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRecord(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			return // JSON cannot represent the year
		}
		if same, err := parseRecord(again); err != nil || !reflect.DeepEqual(same.Submissions, r.Submissions) || same.Run != r.Run {
			t.Fatalf("%q: %v\n%+v\n%+v", text, err, r, same)
		}
	})
}
