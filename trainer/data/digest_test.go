package data

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"
)

// TestDigestDependsOnSamples checks that the digest depends on everything that changes samples,
// and on nothing else.
func TestDigestDependsOnSamples(t *testing.T) {
	digest := func(content []byte, name string, o Options) string {
		o.Path = filepath.Join(files(t, map[string][]byte{name: content}), name)
		d, _, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return d.Digest()
	}
	prose := []byte("the rain in spain stays mainly in the plain")
	tokens := tokenBytes(2, upTo(40)...)
	table := []byte("1,2\n3,4\n5,6\n7,8\n")
	changed := func(content []byte, at int, to byte) []byte {
		c := slices.Clone(content)
		c[at] = to
		return c
	}
	for _, c := range []struct {
		name    string
		content []byte
		o       Options
		same    []byte // different file with equal samples
		other   []byte // file with different samples
		options []Options
	}{
		{"text", prose, Options{Kind: KindText, Context: 12}, gzipped(t, prose), changed(prose, 40, 'i'),
			[]Options{{Kind: KindText, Context: 13}, {Kind: KindText, Context: 12, Vocabulary: VocabularyByte}, {Kind: KindText, Context: 12, Holdout: 0.4}}},
		{"vocabulary", []byte("abab"), Options{Kind: KindText, Context: 2}, []byte("abab"), []byte("acac"), nil},
		{"tokens", tokens, Options{Kind: KindTokens, Context: 4}, llmcBytes(llmcGPT2, 1, 40, tokens), changed(tokens, 8, 9),
			[]Options{{Kind: KindTokens, Context: 5}, {Kind: KindTokens, Context: 4, VocabularySize: 50}, {Kind: KindTokens, Context: 4, Holdout: 0.2}}},
		{"rows", table, Options{Kind: KindCSV, Holdout: 0.5}, gzipped(t, table), bytes.Replace(table, []byte("3"), []byte("9"), 1),
			[]Options{{Kind: KindCSV}, {Kind: KindCSV, Holdout: 0.25}, {Kind: KindCSV, Holdout: 0.5, Seed: 1}}},
	} {
		want := digest(c.content, "f", c.o)
		if digest(c.same, "g", c.o) != want {
			t.Errorf("%s: the digest sees the name or the form of the file", c.name)
		}
		if digest(c.other, "f", c.o) == want {
			t.Errorf("%s: the digest does not see the content", c.name)
		}
		for _, o := range c.options {
			if digest(c.content, "f", o) == want {
				t.Errorf("%s: the digest does not see %+v", c.name, o)
			}
		}
	}
}
