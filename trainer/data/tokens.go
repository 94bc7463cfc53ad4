package data

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ddpbatch/ddpbatch/internal/hints"
)

// mappedTokens is a dataset of sequences in mapped files.
type mappedTokens[T token] struct {
	*sequences[T]
	parts []shard[T]
	files mappings
}

// newMappedTokens divides the shards of path into samples. The caller sets outputs and digest.
func newMappedTokens[T token](path string, shards []shard[T], context int) (*mappedTokens[T], error) {
	d := &mappedTokens[T]{parts: shards}
	var tokens [][]T
	for _, s := range shards {
		d.files = append(d.files, s.mapping)
		tokens = append(tokens, s.tokens)
	}
	var err error
	d.sequences, err = newSequences(path, tokens, context)
	return d, err
}

// Read panics with the error of tryRead.
func (d *mappedTokens[T]) Read(indices []int, into Batch) {
	if err := d.tryRead(indices, into); err != nil {
		panic(err)
	}
}

// tryRead reads like Read, but returns an error if a file can no longer be read, or if a token is not
// in the vocabulary. Such a token must never reach a model.
func (d *mappedTokens[T]) tryRead(indices []int, into Batch) error {
	return d.files.guard(func() error {
		d.sequences.Read(indices, into)
		for row, i := range indices {
			at := row * d.context
			tokens, labels := into.Tokens[at:at+d.context], into.Labels[at:at+d.context]
			if max(largestID(tokens), largestID(labels)) >= uint32(d.outputs) {
				return d.rangeError(i, append(slices.Clone(tokens), labels[d.context-1]))
			}
		}
		return nil
	})
}

// largestID returns the largest of token IDs. Those above the largest int32 are negative.
func largestID(ids []int32) uint32 {
	most := uint32(0)
	for _, id := range ids {
		most = max(most, uint32(id))
	}
	return most
}

// rangeError returns the error for sample i, whose tokens are not all in the vocabulary.
func (d *mappedTokens[T]) rangeError(i int, tokens []int32) error {
	k, at := d.locate(i)
	p := d.parts[k]
	first := slices.IndexFunc(tokens, func(id int32) bool { return uint32(id) >= uint32(d.outputs) })
	if first < 0 { // a label was read separately from the token at its place
		return p.changedError()
	}
	return p.rangeError(at+first, uint32(tokens[first]), d.outputs)
}

// openTokens maps token files. Only scan reads all of them.
func openTokens(ctx context.Context, o Options, scan Scanner) (train, eval Dataset, err error) {
	if err := checkContext(o); err != nil {
		return nil, nil, err
	}
	if o.VocabularySize < 0 || o.VocabularySize > maxVocabulary {
		return nil, nil, fmt.Errorf("open data: a vocabulary of %d tokens, want 0 to %d", o.VocabularySize, maxVocabulary)
	}
	width := uint16Width
	switch o.DType {
	case "", DTypeUint16:
	case DTypeUint32:
		width = uint32Width
	default:
		return nil, nil, fmt.Errorf("open data: unknown type of tokens %q, want %q or %q", o.DType, DTypeUint16, DTypeUint32)
	}
	trainFiles, err := openTokenFiles(o.Path, width)
	if err != nil {
		return nil, nil, err
	}
	var evalFiles []tokenFile
	if o.EvalPath != "" {
		if evalFiles, err = openTokenFiles(o.EvalPath, width); err != nil {
			return nil, nil, err
		}
	}
	if err := checkDisjoint(trainFiles, evalFiles); err != nil {
		return nil, nil, err
	}
	if trainFiles[0].width == uint16Width {
		return readTokens[uint16](ctx, o, scan, trainFiles, evalFiles)
	}
	return readTokens[uint32](ctx, o, scan, trainFiles, evalFiles)
}

// openTokenFiles maps the file at path, or the files that match it as a pattern.
func openTokenFiles(path string, rawWidth int) ([]tokenFile, error) {
	paths, err := matchFiles(path)
	if err != nil {
		return nil, err
	}
	files := make([]tokenFile, len(paths))
	for i, p := range paths {
		m, err := mapFile(p)
		if err != nil {
			return nil, err
		}
		if err := (mappings{m}).guard(func() error {
			files[i], err = parseTokenFile(m, rawWidth)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// matchFiles returns the files that match a path whose last element may be a pattern, sorted by name. The names
// of directories are literal: a pattern of several directories could match endless paths through links. If a
// file with that exact path exists, matchFiles returns only that file.
func matchFiles(pattern string) ([]string, error) {
	dir, base := filepath.Dir(pattern), filepath.Base(pattern)
	if _, err := os.Stat(pattern); err == nil || !strings.ContainsAny(base, `*?[`) {
		return []string{pattern}, nil
	}
	entries, err := os.ReadDir(dir + "/.") // an error for a FIFO, which would wait for a writer
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", pattern, stripPath(err))
	}
	var paths []string
	for _, entry := range entries {
		matches, err := filepath.Match(base, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", pattern, err)
		}
		if matches {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("read %q: no file matches this pattern", pattern)
	}
	return paths, nil
}

// checkDisjoint returns an error unless all files have tokens of one type, and no file is in both
// the training and the held-out data.
func checkDisjoint(train, eval []tokenFile) error {
	for _, f := range slices.Concat(train, eval) {
		if f.width != train[0].width {
			return fmt.Errorf("read %q: tokens of %d bytes, but %q has tokens of %d bytes", f.path, f.width, train[0].path, train[0].width)
		}
	}
	for _, e := range eval {
		for _, t := range train {
			if os.SameFile(e.info, t.info) {
				return hints.Errorf("make the patterns narrower, or hold out a share instead",
					"read %q: the file is held out and, as %q, trained on", e.path, t.path)
			}
		}
	}
	return nil
}

// shard is a part of a file's tokens.
type shard[T token] struct {
	tokenFile
	from   int // index of the first token
	tokens []T
}

func shardsOf[T token](files []tokenFile) []shard[T] {
	var shards []shard[T]
	for _, f := range files {
		shards = append(shards, shard[T]{f, 0, tokensOf[T](f.content[f.offset:])})
	}
	return shards
}

// cutShards holds out the last fraction of all tokens, like openText.
func cutShards[T token](shards []shard[T], share float64) (train, held []shard[T]) {
	n := 0
	for _, s := range shards {
		n += len(s.tokens)
	}
	left := int(float64(n) * (1 - share))
	for _, s := range shards {
		cut := min(left, len(s.tokens))
		left -= cut
		if cut > 0 {
			train = append(train, shard[T]{s.tokenFile, 0, s.tokens[:cut]})
		}
		if cut < len(s.tokens) {
			held = append(held, shard[T]{s.tokenFile, cut, s.tokens[cut:]})
		}
	}
	return train, held
}

// scan validates and hashes the tokens of a shard, and returns the largest token ID.
func (s shard[T]) scan(ctx context.Context, limit int, d *digest) (largest int, err error) {
	d.bytes(fmt.Appendf(nil, "%d\n", len(s.tokens)))
	at := 0
	for tokens := range slices.Chunk(s.tokens, scanBlock) {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("read %q: %w", s.path, context.Cause(ctx))
		}
		most := int(slices.Max(tokens))
		if most >= limit {
			return 0, s.findInvalid(at, tokens, limit)
		}
		largest = max(largest, most)
		d.bytes(bytesOf(tokens))
		at += len(tokens)
	}
	return largest, nil
}

// findInvalid returns the error for the first of the tokens at an index of the shard that is not below
// limit. It reads the mapped file again.
func (s shard[T]) findInvalid(at int, tokens []T, limit int) error {
	for i, token := range tokens {
		if int(token) >= limit {
			return s.rangeError(at+i, uint32(token), limit)
		}
	}
	return s.changedError()
}

// changedError returns the error for a file that changed between two reads.
func (f tokenFile) changedError() error {
	return hints.Errorf("do not change a file in use", "read %q: the file changed while it was read", f.path)
}

// scanBlock is the number of tokens to scan at a time, so that they stay in the cache for the hash.
const scanBlock = 1 << 14

// rangeError returns the error for the token at an index of the shard, which is not below limit.
func (s shard[T]) rangeError(at int, token uint32, limit int) error {
	return hints.Errorf(fmt.Sprintf("check the vocabulary size, and that tokens have %d bytes; do not change a file in use", s.width),
		"read %q: at byte %d: token %d, but the vocabulary has %d", s.path, s.offset+(s.from+at)*s.width, token, limit)
}
