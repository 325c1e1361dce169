package provider

import (
	"fmt"
	"strings"
)

// ArgsChecker is implemented by providers that can validate, without a request, what Create
// would refuse.
type ArgsChecker interface {
	// CheckArgs returns, as FieldErrors, the problems of a config's args and the userdata, instance
	// type, architecture and subnet used with them. Paths are those of a group in the config, such as
	// args.env.HOME, userdata and instance_type. The spec need not be of a real instance: rendered values
	// may be made up, other fields may be missing, and InstanceType and Subnet are empty if the
	// config has none. What it refuses, Create refuses too. It is pure.
	CheckArgs(spec Spec) error
}

// FieldError is a problem of one field, with what would be valid.
type FieldError struct{ Path, Message string }

// FieldErrors are the problems of a provider's config fields. As an error it matches ErrInvalid
// and is never empty; use Err.
type FieldErrors []FieldError

func (es FieldErrors) Error() string {
	texts := make([]string, len(es))
	for n, e := range es {
		texts[n] = e.Path + ": " + e.Message
	}
	return ErrInvalid.Error() + ": " + strings.Join(texts, "; ")
}

// Unwrap returns ErrInvalid.
func (es FieldErrors) Unwrap() error { return ErrInvalid }

// Err returns es as an error; nil if it is empty.
func (es FieldErrors) Err() error {
	if len(es) == 0 {
		return nil
	}
	return es
}

// Addf adds a problem of one field.
func (es *FieldErrors) Addf(path, format string, args ...any) {
	*es = append(*es, FieldError{path, fmt.Sprintf(format, args...)})
}
