package templates

import (
	"errors"
	"fmt"
	"strings"
)

// The functions below parse a script as sbatch does. They follow the manual and the behavior
// of sbatch 22.05.8, and share no code with the quoting that they test.

// sbatchArgs returns the options on the #SBATCH lines of a script. It stops at the first line
// that is neither empty nor a comment.
func sbatchArgs(script string) ([]string, error) {
	switch {
	case !strings.HasPrefix(script, "#!"):
		return nil, errors.New("this does not look like a batch script")
	case strings.Contains(script, "\r\n"):
		return nil, errors.New("the batch script contains DOS line breaks")
	case strings.Contains(script, "\x00"):
		return nil, errors.New("the script contains a null character")
	}
	var args []string
	for line := range strings.Lines(script) {
		rest, ok := strings.CutPrefix(line, "#SBATCH")
		if !ok {
			if trimmed := strings.TrimLeft(line, " \t\n\v\f\r"); trimmed != "" && trimmed[0] != '#' {
				break
			}
			continue
		}
		lower := strings.ToLower(rest)
		if strings.Contains(lower, "hetjob") || strings.Contains(lower, "packjob") {
			return nil, fmt.Errorf("%q begins another component", line)
		}
		for {
			arg, more, rest2, err := sbatchToken(rest)
			if err != nil {
				return nil, err
			}
			if !more {
				break
			}
			args, rest = append(args, arg), rest2
		}
	}
	return args, nil
}

// sbatchToken reads one argument of a line.
func sbatchToken(line string) (arg string, ok bool, rest string, err error) {
	line = strings.TrimLeft(line, " \t\n\v\f\r")
	if strings.HasPrefix(line, ":") {
		return "", false, "", fmt.Errorf("unexpected `:` in %q", line)
	}
	var out []byte
	var quote byte
	found, escaped := false, false
	for i := 0; ; i++ {
		if i == len(line) || line[i] == '\n' {
			rest = ""
			break
		}
		c := line[i]
		if quote == 0 && strings.IndexByte(" \t\v\f\r", c) >= 0 {
			rest = line[i:]
			break
		}
		switch {
		case escaped:
			escaped = false
			out, found = append(out, c), true
		case c == '\\':
			escaped = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && c == '#':
			return string(out), found, "", nil
		default:
			out, found = append(out, c), true
		}
	}
	if quote != 0 {
		return "", false, "", fmt.Errorf("unmatched `%c` in %q", quote, line)
	}
	return string(out), found, rest, nil
}

// expandOutput replaces the symbols of a file name as Slurm does for job 42.
func expandOutput(pattern string) string {
	if strings.Contains(pattern, `\`) {
		return strings.ReplaceAll(pattern, `\`, "")
	}
	var out strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' || i+1 == len(pattern) {
			out.WriteByte(pattern[i])
			continue
		}
		i++
		switch pattern[i] {
		case '%':
			out.WriteByte('%')
		case 'j':
			out.WriteString("42")
		default:
			out.WriteString("<another symbol>")
		}
	}
	return out.String()
}
