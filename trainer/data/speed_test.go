package data

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkOpenText opens 100 MB of English or Cyrillic letters.
func BenchmarkOpenText(b *testing.B) {
	for name, line := range map[string]string{"latin": "First Citizen: before we proceed any further, hear me speak.\n", "cyrillic": "Все счастливые семьи похожи друг на друга.\n"} {
		path := filepath.Join(b.TempDir(), "f.txt")
		content := bytes.Repeat([]byte(line), 100_000_000/len(line))
		if err := os.WriteFile(path, content, 0o600); err != nil {
			b.Fatal(err)
		}
		for _, vocabulary := range []string{VocabularyChar, VocabularyByte} {
			b.Run(name+"/"+vocabulary, func(b *testing.B) {
				b.SetBytes(int64(len(content)))
				for b.Loop() {
					if _, _, err := Open(b.Context(), Options{Kind: KindText, Path: path, Context: 256, Vocabulary: vocabulary, Holdout: 0.1}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkOpenTokens validates 100 MB of tokens.
func BenchmarkOpenTokens(b *testing.B) {
	path := filepath.Join(b.TempDir(), "f.bin")
	if err := os.WriteFile(path, make([]byte, 100_000_000), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(100_000_000)
	for b.Loop() {
		if _, _, err := Open(b.Context(), Options{Kind: KindTokens, Path: path, Context: 1024}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadTokens reads batches of 8 samples of 1024 tokens.
func BenchmarkReadTokens(b *testing.B) {
	path := filepath.Join(b.TempDir(), "f.bin")
	if err := os.WriteFile(path, make([]byte, 100_000_000), 0o600); err != nil {
		b.Fatal(err)
	}
	d, _, err := Open(b.Context(), Options{Kind: KindTokens, Path: path, Context: 1024})
	if err != nil {
		b.Fatal(err)
	}
	batch, indices := NewBatch(d, 8), []int{1, 4000, 17, 40000, 3, 2, 9, 30001}
	for b.Loop() {
		d.Read(indices, batch)
	}
}
