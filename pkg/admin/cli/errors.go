package cli

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/rpc"
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func usagef(msg string, args ...any) error { return usageError{fmt.Errorf(msg, args...)} }

// Unwrap returns what is wrong.
func (e usageError) Unwrap() error { return e.error }

// hint returns the next step to take after an error.
func hint(err error) string {
	switch {
	case errors.Is(err, admin.ErrNoGroup):
		return "`nstance-admin group list` lists the groups"
	case errors.Is(err, admin.ErrNoIdentity):
		return "`nstance-admin cluster register-operator` creates an identity; --identity-dir sets its folder"
	}
	if errors.As(err, new(*rpc.ConnectError)) && rpc.Misdirected(err) {
		return "--servers, or NSTANCE_ADMIN_SERVERS, has the operator addresses; --identity-dir has the CAs and the identity"
	}
	if rpc.Outage(err) {
		return "the log of the servers says why they can't write to object storage: the store, the network, or their credentials; " +
			"until then no machine is replaced or changed"
	}
	switch status.Code(err) {
	case codes.AlreadyExists:
		return "`nstance-admin group status` shows the existing group; `group scale` changes its size; create never changes an existing group"
	case codes.Unavailable:
		return "check that --servers has the server's operator address; the server's health endpoint and its log show what it waits for"
	case codes.Unauthenticated:
		return "the identity is not (or no longer) accepted: create a new one with `nstance-admin cluster register-operator`"
	case codes.Unimplemented:
		return "--servers, or NSTANCE_ADMIN_SERVERS, has the operator addresses"
	case codes.Aborted:
		return "it was changed meanwhile, perhaps by an earlier attempt of this command: check its state and repeat if still needed"
	case codes.NotFound:
		return "`nstance-admin group list`, `nstance-admin instance list` and `nstance-admin operator list` list what exists"
	default:
		return ""
	}
}
