package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/nstance/nstance/pkg/provider"
)

// answered reports whether err is the engine's own answer. Without one the
// outcome is unknown.
func answered(err error) bool {
	return errdefs.IsNotFound(err) || errdefs.IsConflict(err) || errdefs.IsInvalidArgument(err) ||
		errdefs.IsPermissionDenied(err) || errdefs.IsUnauthorized(err) || errdefs.IsInternal(err) || errdefs.IsResourceExhausted(err)
}

// unreached gives a call that the engine did not answer its kind. An engine that
// may not be spoken to has made nothing.
func unreached(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", provider.ErrUnauthorized, err)
	}
	return err
}

// refused gives a create that made no container its kind.
func refused(err error, image string) error {
	if errdefs.IsNotFound(err) && says(err, "image") {
		return fmt.Errorf("%w: %w: %w: build or load the image %s on the engine first, or name its registry too",
			provider.ErrInvalid, errNoImage, err, image)
	}
	return kind(err)
}

// unpulled gives a pull that failed its kind. What goes wrong while an image comes in
// the engine tells in words only. Nothing was made yet in any case. A registry that is
// asked too often is no throttled provider: it concerns one image, and not all calls.
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

// kind sorts the engine's answers. A conflict, an internal error and the rest
// are temporary, and keep their outcome unknown.
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

// unstartable gives a start that failed its kind. Permission denied here means
// that an address is taken, which passes.
func unstartable(err error) error {
	if errdefs.IsPermissionDenied(err) {
		return err
	}
	return kind(err)
}

// uncopied gives a copy into a container that failed its kind: only a full disk, which
// the container may be a part of, is a reason to give it up.
func uncopied(err error) error {
	if says(err, "no space left on device") {
		return fmt.Errorf("%w: %w", provider.ErrQuota, err)
	}
	return err
}

// says recognises what the engine tells in words only.
func says(err error, words string) bool { return strings.Contains(strings.ToLower(err.Error()), words) }
