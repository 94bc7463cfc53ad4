package templates

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// quoteDirective quotes the value of an option on a #SBATCH line. sbatch splits such a line by
// its own rules (get_argument in its source, tested with 22.05):
//   - White space ends an argument. An unquoted # ends the line without a warning, even inside
//     a word.
//   - ' and " both quote. A backslash quotes the next character, also inside both kinds of
//     quotes, so shell quoting has a different result.
//   - Some versions treat a line that contains hetjob or packjob, quoted or not, as the start
//     of another component of the job.
//
// quoteDirective therefore encloses the value in double quotes, adds a backslash before each \
// and ", and splits these two words with a backslash, which has no other effect.
func quoteDirective(value string) (string, error) {
	if err := checkControl(value); err != nil {
		return "", err
	}
	if plain(value) && !strings.Contains(strings.ToLower(value), "job") {
		return value, nil
	}
	var out strings.Builder
	out.WriteByte('"')
	for i := range len(value) {
		if c := value[i]; c == '\\' || c == '"' || splitsJob(value, i) {
			out.WriteByte('\\')
		}
		out.WriteByte(value[i])
	}
	out.WriteByte('"')
	return out.String(), nil
}

// quoteOption quotes a whole option, "--name=value". The name must not need quotes.
func quoteOption(option string) (string, error) {
	name, value, ok := strings.Cut(option, "=")
	if !ok {
		return quoteDirective(option)
	}
	value, err := quoteDirective(value)
	return name + "=" + value, err
}

// splitsJob reports whether the "job" in hetjob or packjob starts at byte i.
func splitsJob(value string, i int) bool {
	before := strings.ToLower(value[max(0, i-4):i])
	return len(value)-i >= 3 && strings.EqualFold(value[i:i+3], "job") &&
		(strings.HasSuffix(before, "het") || strings.HasSuffix(before, "pack"))
}

// quoteShell quotes a value as one word of a POSIX shell.
func quoteShell(value string) (string, error) {
	if err := checkControl(value); err != nil {
		return "", err
	}
	if plain(value) {
		return value, nil
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'", nil
}

// quoteOutput escapes a directory for sbatch --output, where % starts a replacement symbol and
// %% is a percent sign. It rejects backslashes: a backslash anywhere in the name disables the
// symbols and cannot be escaped (sbatch(1), "filename pattern").
func quoteOutput(dir string) (string, error) {
	if strings.Contains(dir, `\`) {
		return "", fmt.Errorf("%q contains a backslash, which Slurm does not support in the name of a log file", dir)
	}
	return strings.ReplaceAll(dir, "%", "%%"), nil
}

// plain reports whether a value needs no quotes for either sbatch or a shell.
func plain(value string) bool {
	for i := range len(value) {
		c := value[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("%+,-./:@_", rune(c)) {
			return false
		}
	}
	return value != ""
}

// checkControl returns an error for text that no value may contain: characters that end a line or control
// a terminal, and bytes that are not UTF-8.
func checkControl(value string) error {
	if !utf8.ValidString(value) {
		return fmt.Errorf("%q is not UTF-8", value)
	}
	for _, r := range value {
		if printable.IsControl(r) {
			return fmt.Errorf("%q contains the control character %U", value, r)
		}
	}
	return nil
}
