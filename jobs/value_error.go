package jobs

import (
	"fmt"
	"time"
)

// A valueError is the error for a value that its type rejects. The decoder adds the position.
type valueError struct {
	message    string // description, such as `must be 1 or more, not 0`
	allowed    string // valid values, as a phrase, such as `allowed: auto, cpu`
	suggestion string // valid value that was probably meant
}

func (r *valueError) Error() string {
	if r.allowed == "" {
		return r.message
	}
	return r.message + "; " + r.allowed
}

func valueErrorf(allowed, format string, args ...any) *valueError {
	return &valueError{message: fmt.Sprintf(format, args...), allowed: allowed}
}

// stringValue returns v if it is a TOML string. The error never contains the value, which may
// be a secret.
func stringValue(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	return "", valueErrorf("", "must be a string in quotes, not %s", typeName(v))
}

// typeName returns the TOML type of a decoded value, with an article.
func typeName(v any) string {
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
