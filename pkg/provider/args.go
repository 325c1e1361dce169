package provider

import (
	"fmt"
	"strings"
)

// ArgsChecker is implemented by providers that can tell, without asking anybody,
// what Create would refuse.
type ArgsChecker interface {
	// CheckArgs reports, as FieldErrors, what is wrong with what a config asks for:
	// args, and the instance type, architecture and subnet that go with them. Paths
	// are those of a group in the config, such as args.env.HOME and instance_type. No
	// instance has to be meant: what was rendered for one may be made up, and all else
	// in the spec may be missing; InstanceType and Subnet are empty where the config
	// names none. What it refuses Create refuses too. It is pure.
	CheckArgs(spec Spec) error
}

// FieldError says what is wrong with one field, and what would be valid.
type FieldError struct{ Path, Message string }

// FieldErrors are wrong fields of what a config gave to a provider. As an error it
// is ErrInvalid and never empty; Err makes that sure.
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

// Err returns es as an error, nil when there is none.
func (es FieldErrors) Err() error {
	if len(es) == 0 {
		return nil
	}
	return es
}

// Addf adds what is wrong with one field.
func (es *FieldErrors) Addf(path, format string, args ...any) {
	*es = append(*es, FieldError{path, fmt.Sprintf(format, args...)})
}
