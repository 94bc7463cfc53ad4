package jobs

import (
	"fmt"
	"time"
)

// A refusal says why a value is not of its type. Decoding adds the place.
type refusal struct {
	message    string // what is wrong: `must be 1 or more, not 0`
	allowed    string // what would be right, as a phrase: `allowed: auto, cpu`
	suggestion string // the allowed value that was probably meant

	choices []string // all that would be right, where that is a list
}

func (r *refusal) Error() string {
	if r.allowed == "" {
		return r.message
	}
	return r.message + "; " + r.allowed
}

// refuse returns a refusal with a formatted message.
func refuse(allowed, format string, args ...any) *refusal {
	return &refusal{message: fmt.Sprintf(format, args...), allowed: allowed}
}

// stringValue returns v if it is a TOML string. The refusal never holds the
// value, which may be a secret.
func stringValue(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	return "", refuse("", "must be a string in quotes, not %s", describe(v))
}

// describe names the TOML type of a decoded value.
func describe(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case bool:
		return "a boolean"
	case time.Time:
		return "a date or time"
	case []any:
		return "a list"
	case []map[string]any:
		return "a list of tables"
	case map[string]any:
		return "a table"
	}
	return fmt.Sprintf("a %T", v)
}
