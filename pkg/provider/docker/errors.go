package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/nstance/nstance/pkg/provider"
)

// answered reports whether err is an answer of the engine. Otherwise the outcome is unknown.
func answered(err error) bool {
	return errdefs.IsNotFound(err) || errdefs.IsConflict(err) || errdefs.IsInvalidArgument(err) ||
		errdefs.IsPermissionDenied(err) || errdefs.IsUnauthorized(err) || errdefs.IsInternal(err) || errdefs.IsResourceExhausted(err)
}

// unreached wraps the error of an unanswered call in its kind. If access to the engine is
// denied, nothing was made.
func unreached(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", provider.ErrUnauthorized, err)
	}
	return err
}

// refused wraps the error of a create that made no container in its kind.
func refused(err error, image string) error {
	if errdefs.IsNotFound(err) && says(err, "image") {
		return fmt.Errorf("%w: %w: %w: build or load the image %s on the engine first, or name its registry too",
			provider.ErrInvalid, errNoImage, err, image)
	}
	return kind(err)
}

// unpulled wraps the error of a failed pull in its kind, recognised by its text, as the engine
// reports errors during a pull as text only. Nothing was made in any case. A registry's rate
// limit is not ErrThrottled: it affects one image, not all calls.
func unpulled(err error) error {
	switch {
	case says(err, "toomanyrequests"), says(err, "too many requests"):
		return fmt.Errorf("%w: %w", provider.ErrQuota, err)
	case says(err, "unauthorized"), says(err, "access denied"), says(err, "no basic auth credentials"):
		return fmt.Errorf("%w: %w", provider.ErrUnauthorized, err)
	case says(err, "manifest unknown"), says(err, "no matching manifest"), says(err, "server gave http response to https client"):
		return fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	default:
		return kind(unreached(err))
	}
}

// kind wraps an answer of the engine in its kind. Conflicts, internal errors and others are
// temporary, with unknown outcome.
func kind(err error) error {
	switch {
	case says(err, "no available ipv4 addresses"):
		return fmt.Errorf("%w: %w", provider.ErrSubnetFull, err)
	case says(err, "no space left on device"), says(err, "cannot allocate memory"):
		return fmt.Errorf("%w: %w", provider.ErrQuota, err)
	case errdefs.IsNotFound(err), errdefs.IsInvalidArgument(err):
		return fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	case errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err):
		return fmt.Errorf("%w: %w", provider.ErrUnauthorized, err)
	case errdefs.IsResourceExhausted(err):
		return fmt.Errorf("%w: %w", provider.ErrThrottled, err)
	default:
		return err
	}
}

// unstartable wraps the error of a failed start in its kind. Permission denied here means that
// an address is in use, which is temporary.
func unstartable(err error) error {
	if errdefs.IsPermissionDenied(err) {
		return err
	}
	return kind(err)
}

// uncopied wraps the error of a failed copy into a container in its kind: only a full disk,
// which the container may contribute to, is a reason to give the container up.
func uncopied(err error) error {
	if says(err, "no space left on device") {
		return fmt.Errorf("%w: %w", provider.ErrQuota, err)
	}
	return err
}

// says reports whether an error contains words, for errors that the engine reports as text
// only.
func says(err error, words string) bool { return strings.Contains(strings.ToLower(err.Error()), words) }
