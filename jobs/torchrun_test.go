package jobs

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestTorchrunArgv checks which words of a command line are the interpreter, the script, and its
// arguments.
func TestTorchrunArgv(t *testing.T) {
	for _, tt := range []struct {
		argv        string
		want        string
		interpreter string
		word        int // position of the invalid word in argv
	}{
		{"train.py --epochs 3", "train.py --epochs 3", "", -1},
		{"python3 train.py --epochs 3", "train.py --epochs 3", "", -1},
		{"python -u train.py -u", "train.py -u", "", -1},
		{"python3 -m package.train -x", "-m package.train -x", "", -1},
		{"-m package.train", "-m package.train", "", -1},
		{"/opt/venv/bin/python3 train.py", "train.py", "/opt/venv/bin/python3", -1},
		{"python3.11 -u -m train", "-m train", "python3.11", -1},
		{"python3.13t -u train.py", "train.py", "python3.13t", -1},
		{"pypy3 train.py", "train.py", "pypy3", -1},
		{"--redirects 9:1 python3.14t train.py", "", "", 2},
		{"--redirects 9:1 train.py", "--redirects 9:1 train.py", "", -1},
		{"--no_python python3 -X dev train.py", "--no_python python3 -X dev train.py", "", -1},
		{"pythonic.py", "pythonic.py", "", -1},
		{"python3 -X dev train.py", "", "", 1},
		{"python3 -u -c pass", "", "", 2},
		{"python3", "", "", 0},
		{"--redirects 9:1 python3 train.py", "", "", 2},
		{"--redirects 9:1 train.py python3", "--redirects 9:1 train.py python3", "", -1},
		{"torchrun train.py", "", "", 0},
		{"bash train.sh", "", "", 0},
		{"./train.sh --x", "", "", 0},
		{"--no_python bash train.sh", "--no_python bash train.sh", "", -1},
		{"python3 -m torch.distributed.run train.py", "", "", 2},
	} {
		var c Command
		for word := range strings.FieldsSeq(tt.argv) {
			c.Argv = append(c.Argv, Text(word))
		}
		interpreter, got, err := c.TorchrunArgv()
		word := -1
		if wrong := (*argvError)(nil); errors.As(err, &wrong) {
			word = wrong.word
		}
		if word != tt.word || interpreter != tt.interpreter || !slices.Equal(got, strings.Fields(tt.want)) {
			t.Errorf("%s: got %q by %q, error at word %d, want %q by %q, %d", tt.argv, got, interpreter, word, tt.want, tt.interpreter, tt.word)
		}
	}
}

// TestTorchrunHintKeepsOptions checks that the suggested argv retains the options of torchrun and
// the script.
func TestTorchrunHintKeepsOptions(t *testing.T) {
	for _, tt := range []struct{ argv, want string }{
		{"/usr/bin/python3 --redirects 9:1 --tee 9:1 train.py", `argv = ["--redirects", "9:1", "--tee", "9:1", "train.py"]`},
		{"python3 -X dev train.py --epochs 3", `argv = ["train.py", "--epochs", "3"]`},
		{"python3 -c pass", `argv = ["--no_python", "python3", "-c", "pass"]`},
		{"--tee 3 python3 train.py", `argv = ["--tee", "3", "train.py"]`},
		{"bash 2 3 4 5 6 7 8 9 10 11", `"10", "11"]`},
		{"bash 2 3 4 5 6 7 8 9 10 11 12", `"10", "11", ...]`},
		{"bash " + strings.Repeat("x", 80), strings.Repeat("x", 80) + `"]`},
		{"bash " + strings.Repeat("x", 81) + " y", `"bash", ...]`},
		{"bash train.sh", `argv = ["--no_python", "bash", "train.sh"]`},
	} {
		var c Command
		for word := range strings.FieldsSeq(tt.argv) {
			c.Argv = append(c.Argv, Text(word))
		}
		_, _, err := c.TorchrunArgv()
		wrong := (*argvError)(nil)
		if !errors.As(err, &wrong) || !strings.Contains(wrong.allowed, tt.want) {
			t.Errorf("%s: got %+v, want the hint %s", tt.argv, err, tt.want)
		}
	}
}
