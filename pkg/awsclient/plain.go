package awsclient

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// InsecureVariable is the boolean variable that allows plain HTTP to object storage and services
// of AWS on other machines.
const InsecureVariable = "NSTANCE_INSECURE_STORAGE"

// ErrPlain is the error of a URL that CheckPlain refuses.
var ErrPlain = errors.New("plain HTTP to a remote host")

// WithInsecure returns getenv with InsecureVariable set.
func WithInsecure(getenv func(string) string) func(string) string {
	return func(name string) string {
		if name == InsecureVariable {
			return "true"
		}
		return reader(getenv).Get(name)
	}
}

// CheckPlain refuses a plain HTTP URL of a remote host: the network could read and modify
// requests, including secrets and the nonces in userdata, and only TLS authenticates the replies,
// such as that an instance is gone. Invalid URLs are left to
// the caller. variable names the source of the URL.
func CheckPlain(variable, raw string) error {
	u, err := url.Parse(raw)
	if err == nil && u.Scheme == "http" && !loopback(u.Hostname()) {
		return fmt.Errorf("%s is %q, %w: want https:// or, on a trusted network, %s=true", variable, u.Redacted(), ErrPlain, InsecureVariable)
	}
	return nil
}

// CheckPlainUnlessAllowed is CheckPlain unless the environment allows plain HTTP (InsecureVariable).
// getenv nil: os.Getenv.
func CheckPlainUnlessAllowed(getenv func(string) string, variable, raw string) error {
	in := reader(getenv)
	if insecure := in.Bool(InsecureVariable); insecure || in.Err() != nil {
		return in.Err()
	}
	return CheckPlain(variable, raw)
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}
