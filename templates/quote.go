package templates

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ddpbatch/ddpbatch/internal/printable"
)

// quoteDirective writes a value of an option on an #SBATCH line. sbatch splits
// such a line by rules of its own (get_argument in its source, tried on 22.05):
//   - white space ends an argument, and an unquoted # ends the line, even within
//     a word, without a warning;
//   - ' and " both quote, and a backslash takes the next character as it is,
//     inside quotes of either kind too, so that what a shell's quoting writes is
//     read differently;
//   - a line that holds the words hetjob or packjob, in quotes or not, is taken
//     for the start of another component of the job by some versions.
//
// So the value stands in double quotes with a backslash before each \ and ", and
// those two words are broken by a backslash that means nothing.
func quoteDirective(value string) (string, error) {
	if err := refuseControl(value); err != nil {
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

// quoteOption writes a whole option, "--name=value": its name has no character
// that needs quotes.
func quoteOption(option string) (string, error) {
	name, value, ok := strings.Cut(option, "=")
	if !ok {
		return quoteDirective(option)
	}
	value, err := quoteDirective(value)
	return name + "=" + value, err
}

// splitsJob says whether the "job" of hetjob or packjob begins at byte i.
func splitsJob(value string, i int) bool {
	before := strings.ToLower(value[max(0, i-4):i])
	return len(value)-i >= 3 && strings.EqualFold(value[i:i+3], "job") &&
		(strings.HasSuffix(before, "het") || strings.HasSuffix(before, "pack"))
}

// quoteShell writes a value as one word of a POSIX shell.
func quoteShell(value string) (string, error) {
	if err := refuseControl(value); err != nil {
		return "", err
	}
	if plain(value) {
		return value, nil
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'", nil
}

// quoteOutput writes a folder as part of a file name of sbatch --output, where %
// begins a replacement symbol and %% is a percent sign. A backslash anywhere in
// such a name switches the symbols off and cannot stand for itself (sbatch(1),
// "filename pattern"), so it is refused.
func quoteOutput(dir string) (string, error) {
	if strings.Contains(dir, `\`) {
		return "", fmt.Errorf("%q holds a backslash, which Slurm cannot have in the name of a log", dir)
	}
	return strings.ReplaceAll(dir, "%", "%%"), nil
}

// plain says whether a value needs no quotes, neither for sbatch nor for a shell.
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

// refuseControl refuses what no value may hold: characters that end a line or
// steer a terminal, and bytes that are no text.
func refuseControl(value string) error {
	if !utf8.ValidString(value) {
		return fmt.Errorf("%q is not UTF-8", value)
	}
	for _, r := range value {
		if printable.IsControl(r) {
			return fmt.Errorf("%q holds the control character %U", value, r)
		}
	}
	return nil
}
