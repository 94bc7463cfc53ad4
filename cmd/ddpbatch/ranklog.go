package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/ddpbatch/ddpbatch/jobs/launch"
)

// rankLog is a rank's own log in the run directory: JSON lines, appended to by
// every attempt.
type rankLog struct {
	f *os.File
	l zerolog.Logger
}

func openRankLog(path string, p launch.Place) (*rankLog, error) {
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	c := zerolog.New(f).With().Timestamp().Int("rank", p.Rank).Str("host", p.Host).Int("pid", os.Getpid())
	if p.InSlurm() {
		c = c.Str("job", p.JobID).Str("step", p.StepID).Int("restart", p.RestartCount)
	}
	return &rankLog{f, c.Logger()}, nil
}

// info writes a message with fields given as name, value, name, value.
func (r *rankLog) info(message string, fields ...any) { r.l.Info().Fields(fields).Msg(message) }

func (r *rankLog) failed(err error) { r.l.Error().Err(err).Msg("failed") }

func (r *rankLog) close() { r.f.Close() }
