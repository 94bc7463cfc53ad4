package format_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ddpbatch/ddpbatch/internal/format"
)

func check[T any](t *testing.T, name string, f func(T) string, cases []struct {
	in   T
	want string
}) {
	t.Helper()
	for _, c := range cases {
		if got := f(c.in); got != c.want {
			t.Errorf("%s(%v): got %q, want %q", name, c.in, got, c.want)
		}
	}
}

// TestBytes checks sizes in binary units with three digits.
func TestBytes(t *testing.T) {
	check(t, "Bytes", format.Bytes[int64], []struct {
		in   int64
		want string
	}{
		{0, "0 bytes"},
		{1, "1 byte"},
		{999, "999 bytes"},
		{1000, "0.977 KiB"},
		{1 << 10, "1 KiB"},
		{1023 << 10, "0.999 MiB"},
		{3 << 29, "1.5 GiB"},
		{5 << 40, "5 TiB"},
		{3 << 60, "3.07e+03 PiB"},
	})
}

// TestDuration checks durations in the two largest units.
func TestDuration(t *testing.T) {
	check(t, "Duration", format.Duration, []struct {
		in   time.Duration
		want string
	}{
		{-time.Second, "0s"},
		{1400 * time.Millisecond, "1s"},
		{59*time.Second + 500*time.Millisecond, "1m00s"},
		{200 * time.Second, "3m20s"},
		{time.Hour, "1h00m"},
		{125 * time.Minute, "2h05m"},
		{76 * time.Hour, "3d4h"},
	})
}

// TestSeconds checks times of computations, from microseconds to seconds.
func TestSeconds(t *testing.T) {
	check(t, "Seconds", format.Seconds, []struct {
		in   float64
		want string
	}{{1.5, "1.5 s"}, {0.012345, "12.35 ms"}, {1e-3, "1 ms"}, {2.5e-6, "2.5 us"}})
}

// TestNumber checks rounding and the separators of thousands.
func TestNumber(t *testing.T) {
	check(t, "Number", format.Number[float64], []struct {
		in   float64
		want string
	}{{0, "0"}, {999.6, "1,000"}, {-100, "-100"}, {-1234567, "-1,234,567"}, {12345, "12,345"}})
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 ranks", 1: "1 rank", 2: "2 ranks"} {
		if got := format.Count(n, "rank"); got != want {
			t.Errorf("Count(%d): got %q, want %q", n, got, want)
		}
	}
}

func TestPercent(t *testing.T) {
	if got := format.Percent(0.256); got != "26%" {
		t.Errorf("got %q, want 26%%", got)
	}
}

// TestList checks lists with commas that end after a limit.
func TestList(t *testing.T) {
	for _, c := range []struct {
		words []string
		limit int
		want  string
	}{
		{nil, 3, ""},
		{[]string{"a"}, 3, "a"},
		{[]string{"a", "b"}, 3, "a and b"},
		{[]string{"a", "b", "c"}, 3, "a, b, and c"},
		{[]string{"a", "b", "c", "d"}, 3, "a, b, c, and 1 more"},
		{[]string{"a", "b", "c"}, 1, "a and 2 more"},
	} {
		words := append([]string(nil), c.words...)
		if got := format.List(words, c.limit); got != c.want {
			t.Errorf("List(%q, %d): got %q, want %q", c.words, c.limit, got, c.want)
		}
		for i := range words {
			if words[i] != c.words[i] {
				t.Errorf("List(%q, %d) changed its argument: %q", c.words, c.limit, words)
			}
		}
	}
}

// TestRanks checks that consecutive ranks are written as ranges.
func TestRanks(t *testing.T) {
	var odd []int
	for i := range 20 {
		odd = append(odd, 2*i+1)
	}
	for _, c := range []struct {
		ranks []int
		want  string
	}{
		{[]int{3}, "rank 3"},
		{[]int{1, 0}, "ranks 0, 1"},
		{[]int{0, 1, 2}, "ranks 0-2"},
		{[]int{7, 0, 1, 2, 3}, "ranks 0-3, 7"},
		{[]int{7, 6, 5, 3, 1}, "ranks 1, 3, 5-7"},
		{odd, "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 and 4 more"},
	} {
		ranks := slices.Clone(c.ranks)
		if got := format.Ranks(ranks); got != c.want {
			t.Errorf("Ranks(%d): got %q, want %q", c.ranks, got, c.want)
		}
		if !slices.Equal(ranks, c.ranks) {
			t.Errorf("Ranks(%d) changed its argument", c.ranks)
		}
	}
}
