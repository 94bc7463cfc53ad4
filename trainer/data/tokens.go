package data

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mappedTokens is a dataset of sequences in mapped files.
type mappedTokens[T token] struct {
	*sequences[T]
	files mappings
}

// Read panics with the error of tryRead.
func (d mappedTokens[T]) Read(indices []int, into Batch) {
	if err := d.tryRead(indices, into); err != nil {
		panic(err)
	}
}

// tryRead reads like Read, but returns an error if a file can no longer be read.
func (d mappedTokens[T]) tryRead(indices []int, into Batch) error {
	return d.files.guard(func() error {
		d.sequences.Read(indices, into)
		return nil
	})
}

// openTokens maps token files. It validates every token once: a token outside the vocabulary must
// never reach a model.
func openTokens(ctx context.Context, o Options) (train, eval Dataset, err error) {
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
		return readTokens[uint16](ctx, o, trainFiles, evalFiles)
	}
	return readTokens[uint32](ctx, o, trainFiles, evalFiles)
}

// openTokenFiles maps the file at path, or the files that match it as a pattern.
func openTokenFiles(path string, rawWidth int) ([]tokenFile, error) {
	paths, err := matches(path)
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

// matches returns the files that match a pattern, sorted by name. If a file with that exact path
// exists, it returns only that file.
func matches(pattern string) ([]string, error) {
	if _, err := os.Stat(pattern); err == nil || !strings.ContainsAny(pattern, `*?[`) {
		return []string{pattern}, nil
	}
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", pattern, err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("read %q: no file matches this pattern", pattern)
	}
	slices.Sort(paths)
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
				return &hintError{
					fmt.Errorf("read %q: the file is held out and, as %q, trained on", e.path, t.path),
					"make the patterns narrower, or hold out a share instead",
				}
			}
		}
	}
	return nil
}

// readTokens returns the datasets of files with tokens of type T.
func readTokens[T token](ctx context.Context, o Options, trainFiles, evalFiles []tokenFile) (train, eval Dataset, err error) {
	shards, held := shardsOf[T](trainFiles), shardsOf[T](evalFiles)
	evalPath := o.EvalPath
	if o.Holdout > 0 {
		evalPath = o.Path
		shards, held = cutShards(shards, o.Holdout)
	}
	limit := o.VocabularySize
	if limit == 0 {
		limit = maxVocabulary
	}
	t, vocabulary, err := scanTokens(ctx, o.Path, shards, o.Context, limit)
	if err != nil {
		return nil, nil, err
	}
	var e *scanned[T]
	if held != nil {
		var evalVocabulary int
		if e, evalVocabulary, err = scanTokens(ctx, evalPath, held, o.Context, limit); err != nil {
			return nil, nil, err
		}
		vocabulary = max(vocabulary, evalVocabulary)
	}
	if o.VocabularySize > 0 {
		vocabulary = o.VocabularySize
	}
	if e != nil {
		eval = e.dataset(vocabulary)
	}
	return t.dataset(vocabulary), eval, nil
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

// scanned is a dataset without the size of its vocabulary.
type scanned[T token] struct {
	mappedTokens[T]
	hash *digest
}

// scanTokens reads all tokens, which must be below limit. It also returns one more than the largest
// token ID.
func scanTokens[T token](ctx context.Context, path string, shards []shard[T], context, limit int) (s *scanned[T], vocabulary int, err error) {
	var files mappings
	var tokens [][]T
	for _, sh := range shards {
		files = append(files, sh.mapping)
		tokens = append(tokens, sh.tokens)
	}
	sequences, err := newSequences(path, tokens, context)
	if err != nil {
		return nil, 0, err
	}
	s = &scanned[T]{mappedTokens[T]{sequences, files}, sequences.newDigest()}
	err = files.guard(func() error {
		for _, sh := range shards {
			largest, err := sh.scan(ctx, limit, s.hash)
			if err != nil {
				return err
			}
			vocabulary = max(vocabulary, largest+1)
		}
		return nil
	})
	return s, vocabulary, err
}

// scan validates and hashes the tokens of a shard, and returns the largest token ID.
func (s shard[T]) scan(ctx context.Context, limit int, d *digest) (largest int, err error) {
	d.bytes(fmt.Appendf(nil, "%d\n", len(s.tokens)))
	const block = 1 << 14 // tokens, so that they stay in the cache for the hash
	at := 0
	for tokens := range slices.Chunk(s.tokens, block) {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("read %q: %w", s.path, context.Cause(ctx))
		}
		most := int(slices.Max(tokens))
		if most >= limit {
			i := slices.IndexFunc(tokens, func(t T) bool { return int(t) >= limit })
			return 0, &hintError{
				fmt.Errorf("read %q: at byte %d: token %d, but the vocabulary has %d", s.path, s.offset+(s.from+at+i)*s.width, tokens[i], limit),
				fmt.Sprintf("check the vocabulary size, and that tokens have %d bytes", s.width),
			}
		}
		largest = max(largest, most)
		d.bytes(bytesOf(tokens))
		at += len(tokens)
	}
	return largest, nil
}

// dataset completes s.
func (s *scanned[T]) dataset(vocabulary int) Dataset {
	s.hash.bytes(fmt.Appendf(nil, "vocabulary %d\n", vocabulary))
	s.outputs, s.digest = vocabulary, s.hash.String()
	return s.mappedTokens
}
