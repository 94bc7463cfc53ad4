package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/ddpbatch/ddpbatch/trainer/rendezvous"
)

// Failure is failure.json, as the launcher writes it.
type Failure struct {
	Time    time.Time               `json:"time"`
	Attempt int                     `json:"attempt"`
	Exit    int                     `json:"exit"`
	First   *rendezvous.Failure     `json:"first"`
	Ranks   []rendezvous.RankStatus `json:"ranks"`
}

// readFailure reads it; nil where there is none.
func readFailure(path string) (*Failure, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f Failure
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("failure.json is damaged: %w", err)
	}
	return &f, nil
}
