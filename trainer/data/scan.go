package data

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/atomicfile"
	"github.com/ddpbatch/ddpbatch/internal/safefile"
)

// A Scan holds what only a read of all tokens can find. It is small, so that one process can compute
// it for others, and a later one can reuse it.
type Scan struct {
	Digest     string `json:"digest"`                // of the training data
	EvalDigest string `json:"eval_digest,omitempty"` // of the held-out data; empty without held-out data
	Vocabulary int    `json:"vocabulary"`            // number of token IDs
}

// ScanKey identifies a scan: the paths, sizes, and modification times of the files, and the options
// that determine the samples. It is empty if a file is so new that a later change might not change
// its modification time.
type ScanKey string

// minAge is the minimum age of a file for a key. The clocks of file servers differ, and some file
// systems store modification times in steps of two seconds.
const minAge = 10 * time.Second

// scanKey returns the key of files with the given options.
func scanKey(o Options, now time.Time, train, eval []tokenFile) ScanKey {
	type file struct {
		Path            string
		Size, Modified  int64
		Offset, PerItem int
	}
	isNew := false
	describe := func(files []tokenFile) (list []file) {
		for _, f := range files {
			isNew = isNew || now.Sub(f.info.ModTime()) < minAge
			list = append(list, file{f.path, f.info.Size(), f.info.ModTime().UnixNano(), f.offset, f.width})
		}
		return list
	}
	text, err := json.Marshal(struct {
		Version, Context, VocabularySize int
		Holdout                          float64
		Train, Eval                      []file
	}{1, o.Context, o.VocabularySize, o.Holdout, describe(train), describe(eval)})
	if err != nil || isNew {
		return ""
	}
	sum := sha256.Sum256(text)
	return ScanKey(hex.EncodeToString(sum[:]))
}

// name returns the name of the scan's file.
func (k ScanKey) name() string { return "data-" + string(k[:16]) + ".json" }

// scanFile is the content of a scan's file.
type scanFile struct {
	Key ScanKey `json:"key"`
	Scan
}

// maxScanFile limits the size of a scan's file. One has about 300 bytes.
const maxScanFile = 1 << 16

// Load reads the scan from a file in dir, in which [ScanKey.Save] has written it. It returns false
// if the file does not exist, belongs or is accessible to another user, or is invalid.
func (k ScanKey) Load(dir *os.Root) (Scan, bool) {
	if k == "" {
		return Scan{}, false
	}
	f, err := safefile.OpenIn(dir, k.name(), safefile.NoFollow)
	if err != nil {
		return Scan{}, false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || safefile.CheckPrivate(info) != nil {
		return Scan{}, false
	}
	text, err := safefile.ReadAll(f, f.Name(), maxScanFile)
	var s scanFile
	if err != nil || json.Unmarshal(text, &s) != nil || s.Key != k || !s.isValid() {
		return Scan{}, false
	}
	return s.Scan, true
}

// Save writes the scan to a file in dir.
func (k ScanKey) Save(dir *os.Root, s Scan) error {
	if k == "" {
		return nil
	}
	return atomicfile.WriteIn(dir, k.name(), atomicfile.Options{}, func(w io.Writer) error {
		return json.NewEncoder(w).Encode(scanFile{k, s})
	})
}

// isValid reports whether the values are in range.
func (s Scan) isValid() bool {
	isDigest := func(text string) bool {
		b, err := hex.DecodeString(text)
		return err == nil && len(b) == sha256.Size
	}
	return isDigest(s.Digest) && (s.EvalDigest == "" || isDigest(s.EvalDigest)) && s.Vocabulary > 0 && s.Vocabulary <= maxVocabulary
}

// readTokens returns the datasets of files with tokens of type T.
func readTokens[T token](ctx context.Context, o Options, scan Scanner, trainFiles, evalFiles []tokenFile) (train, eval Dataset, err error) {
	shards, held := shardsOf[T](trainFiles), shardsOf[T](evalFiles)
	evalPath := o.EvalPath
	if o.Holdout > 0 {
		evalPath = o.Path
		shards, held = cutShards(shards, o.Holdout)
	}
	t, err := newMappedTokens(o.Path, shards, o.Context)
	if err != nil {
		return nil, nil, err
	}
	var e *mappedTokens[T]
	if held != nil {
		if e, err = newMappedTokens(evalPath, held, o.Context); err != nil {
			return nil, nil, err
		}
	}
	compute := func(ctx context.Context) (Scan, error) { return scanTokens(ctx, o.VocabularySize, t, e) }
	s, err := scan(ctx, scanKey(o, time.Now(), trainFiles, evalFiles), compute)
	if err != nil {
		return nil, nil, err
	}
	t.outputs, t.digest = s.Vocabulary, s.Digest
	if e == nil {
		return t, nil, nil
	}
	e.outputs, e.digest = s.Vocabulary, s.EvalDigest
	return t, e, nil
}

// scanTokens reads all tokens of the training data and, unless it is nil, of the held-out data. All
// must be below the given size of the vocabulary, unless it is 0.
func scanTokens[T token](ctx context.Context, size int, train, eval *mappedTokens[T]) (s Scan, err error) {
	limit := size
	if limit == 0 {
		limit = maxVocabulary
	}
	digests := make([]*digest, 0, 2)
	for _, d := range []*mappedTokens[T]{train, eval} {
		if d == nil {
			continue
		}
		hash := d.newDigest()
		digests = append(digests, hash)
		err := d.files.guard(func() error {
			for _, sh := range d.parts {
				largest, err := sh.scan(ctx, limit, hash)
				if err != nil {
					return err
				}
				s.Vocabulary = max(s.Vocabulary, largest+1)
			}
			return nil
		})
		if err != nil {
			return Scan{}, err
		}
	}
	if size > 0 {
		s.Vocabulary = size
	}
	for i, hash := range digests {
		hash.bytes(fmt.Appendf(nil, "vocabulary %d\n", s.Vocabulary))
		*[]*string{&s.Digest, &s.EvalDigest}[i] = hash.String()
	}
	return s, nil
}
