package cli

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/admin"
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func usagef(msg string, args ...any) error { return usageError{fmt.Errorf(msg, args...)} }

// Unwrap returns what is wrong.
func (e usageError) Unwrap() error { return e.error }

// hint says what to do next about an error.
func hint(err error) string {
	switch {
	case errors.Is(err, admin.ErrNoGroup):
		return "`nstance-admin group list` shows the groups there are"
	case errors.Is(err, admin.ErrNoIdentity):
		return "`nstance-admin cluster register-operator` makes an identity; --identity-dir says where it is"
	}
	switch status.Code(err) {
	case codes.AlreadyExists:
		return "`nstance-admin group status` shows it; `group scale` changes its size, and no other part of it changes by creating it again"
	case codes.Unavailable:
		return "is the server up, and is --servers its operator address? Its health endpoint says what it waits for"
	case codes.Unauthenticated:
		return "the identity is not (or no longer) accepted: make a new one with `nstance-admin cluster register-operator`"
	case codes.Aborted:
		return "it has changed meanwhile, perhaps by an earlier try of this very command: look at it again, and repeat what still holds"
	case codes.NotFound:
		return "`nstance-admin group list`, `nstance-admin instance list` and `nstance-admin operator list` show what there is"
	default:
		return ""
	}
}
